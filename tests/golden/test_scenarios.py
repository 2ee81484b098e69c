"""Every YAML in scenarios/ loads, and runs two rounds at reduced size on generated images."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from otafl import load_scenario, sweeping
from otafl.data import loading
from otafl.data.fashion_mnist import FashionMnist
from otafl.data.files import DATA_DIR
from otafl.data.mnist import Mnist
from otafl.results.ending import final
from otafl.scenario import axes_of as axes

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "scenarios").rglob("*.yaml"))
CASES = [
    file if file.stem == "quickstart" else pytest.param(file, marks=pytest.mark.slow)
    for file in FILES
]
TRAIN, TEST = 2000, 200
SMALLER = {"rounds": 2, "local_steps": 2, "batch_size": 4, "eval_samples": 50}


def idx(values: np.ndarray) -> bytes:
    """Bytes [n, ...] as an IDX file, gzipped."""
    head = [0x0800 + values.ndim, *values.shape]
    return gzip.compress(np.array(head, ">u4").tobytes() + values.astype(np.uint8).tobytes(), 1)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with small image sets of noise under the official names."""
    home = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    for kind in (Mnist, FashionMnist):
        folder = home / kind.files.folder
        folder.mkdir()
        names = [one.file for one in kind.files.downloads]
        counts = dict(zip(names, (TRAIN, TRAIN, TEST, TEST), strict=True))
        for name, count in counts.items():
            labels = generator.permutation(np.arange(count) % 10)
            pixels = generator.integers(0, 256, (count, 28, 28))
            (folder / name).write_bytes(idx(labels if "labels" in name else pixels))
    return home


@pytest.fixture
def generated(images: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The generated images in place of the real ones."""
    monkeypatch.setenv(DATA_DIR, str(images))
    loading._kept.cache_clear()
    yield
    loading._kept.cache_clear()


def reduced(tree: dict[str, Any]) -> dict[str, Any]:
    """The scenario with less of everything: of each axis the first and the last value."""
    training = tree.get("training", {})
    kept = {key: min(value, training.get(key, value)) for key, value in SMALLER.items()}
    tree["training"] = training | kept
    tree["trials"] = min(2, tree.get("trials", 1))
    tree["sweep"] = {key: [*v[:1], *v[1:][-1:]] for key, v in tree.get("sweep", {}).items()}
    for joint in tree["sweep"].get("zip", []):
        joint |= {f"training.{key}": kept[key] for key in kept if f"training.{key}" in joint}
    partitions = list(tree["sweep"].get("data.partition", []))
    if isinstance(tree.get("data"), dict):
        tree["data"].pop("train_samples", None)
        partitions.append(tree["data"].get("partition"))
    for partition in partitions:
        if isinstance(partition, dict):  # what is made for 70,000 images
            if partition["name"] == "class_window":
                partition["reserve"] = 0
            if "samples_per_device" in partition:
                partition["samples_per_device"] = 50
    return tree


def test_there_are_some() -> None:
    assert ROOT / "scenarios" / "quickstart.yaml" in FILES


@pytest.mark.parametrize("file", CASES, ids=lambda file: str(file.relative_to(ROOT / "scenarios")))
def test_scenario(file: Path, generated: None) -> None:
    whole = load_scenario(file)
    assert whole.name == file.stem
    small = load_scenario(reduced(yaml.safe_load(file.read_text())))
    results = sweeping.run(small)
    assert results.attrs["complete"] == 1
    assert results["trial"].size == small.trials
    there = np.zeros(results["final_round"].shape, bool)
    for name in ("test_loss", "personal_own_test_loss"):  # a method may have no global model
        if name in results:
            loss = final(results, name).transpose(*results["final_round"].dims, "trial")
            there |= np.isfinite(loss.values).all(-1)
    assert there.all()
    assert set(axes(small)) <= set(results.dims)
