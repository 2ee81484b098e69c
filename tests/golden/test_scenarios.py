"""Examples, and a sixth of the studies' scenarios, run two rounds at reduced size.

They run on generated images, with the first value of each axis that they sweep:
the examples through the command line, those of studies in memory."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support.command import call
from support.scenarios import SCENARIO_FILES, SCENARIOS
from support.small_sets import encode_idx, write_parkinsons, write_shakespeare

import otafl
from otafl import load_scenario, open_results, plots
from otafl.data import loading
from otafl.data.files import DATA_DIR
from otafl.data.idx import FashionMnist, Mnist
from otafl.data.leaf import Shakespeare
from otafl.data.parkinsons import Parkinsons
from otafl.plots.overviews import overview_data
from otafl.results import files
from otafl.results.end_values import select_final
from otafl.scenario import build_axes as axes
from otafl.scenario.yaml_source import parse

CASES = [
    file if file.stem == "quickstart" else pytest.param(file, marks=pytest.mark.slow)
    for turn, file in enumerate(SCENARIO_FILES)
    if file.parent == SCENARIOS or turn % 6 == 0
]
TRAIN, TEST = 2000, 200
SMALLER = {"rounds": 2, "local_steps": 2, "batch_size": 4, "eval_samples": 50, "eval_every": 2}
FEW = {"fine_tune_steps": 2, "hidden": 24, "min_characters": 1000, "norm_samples": 50, "rows": 8}
"""Numbers that are made smaller wherever a scenario has them."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with small image sets of noise, people and roles under the official names."""
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
            values = encode_idx(labels if "labels" in name else pixels)
            (folder / name).write_bytes(gzip.compress(values, 1))
    write_parkinsons(home / Parkinsons.files.folder, [12] * 42)
    write_shakespeare(home / Shakespeare.files.folder, {f"ROLE {k}": 60 for k in range(36)})
    return home


@pytest.fixture
def generated(images: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The generated images in place of the real ones."""
    monkeypatch.setenv(DATA_DIR, str(images))
    loading._load_from_cache.cache_clear()
    yield
    loading._load_from_cache.cache_clear()


def reduced(tree: dict[str, Any]) -> dict[str, Any]:
    """The scenario with less of everything: one trial of the first value of each axis."""
    tree = with_few(tree)
    training = tree.get("training", {})
    kept = {key: min(value, training.get(key, value)) for key, value in SMALLER.items()}
    tree["training"] = training | kept
    tree["training"].pop("cross_test", None)
    own = {"trials", *(f"training.{key}" for key in kept)}
    swept = {key: values[:1] for key, values in tree.get("sweep", {}).items() if key not in own}
    for joint in swept.get("zip", []):
        joint |= {f"training.{key}": kept[key] for key in kept if f"training.{key}" in joint}
    partitions = [one.get("data.partition") for one in (*swept.get("zip", []), swept)]
    if isinstance(tree.get("data"), dict):
        tree["data"].pop("train_samples", None)
        partitions.append(tree["data"].get("partition"))
    for partition in partitions:
        for one in partition if isinstance(partition, list) else [partition]:
            if isinstance(one, dict) and "samples_per_device" in one:
                one["samples_per_device"] = 50  # the number is made for 70,000 images
    return tree | {"trials": 1, "sweep": swept}


def with_few(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: with_few(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [with_few(one, key) for one in value]
    return min(value, FEW.get(key.rpartition(".")[2], value)) if isinstance(value, int) else value


@pytest.mark.usefixtures("fewest_states")
@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_scenario(
    file: Path, generated: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)  # files that it names lie beside it
    loaded = load_scenario(file)
    assert loaded.name == file.stem
    small, out = tmp_path / file.name, tmp_path / "result.nc"
    tree = parse(file.read_text()).data
    if (file.parent / str(tree.get("extends"))).is_file():  # not one of the presets
        tree = loaded.model_dump(mode="json", exclude_unset=True)
    small.write_text(yaml.safe_dump(reduced(tree), sort_keys=False))
    if file.parent == SCENARIOS:
        call("run", small, "--quiet", "--out", out)
    else:
        whole = otafl.run(small)
        files.write_part(whole, out)
        data, title = overview_data(whole)
        plots.draw(data, title=title)
    results = open_results(out)
    monkeypatch.setattr(files, "open_results", {out: results}.__getitem__)  # read once
    call("show", out)
    assert results.attrs["complete"] == 1
    assert results["trial"].size == 1
    there = np.zeros(results["final_round"].shape, bool)
    for name in ("test_loss", "personal_own_test_loss"):  # a method may have no global model
        if name in results:
            loss = select_final(results, name).transpose(*results["final_round"].dims, "trial")
            there |= np.isfinite(loss.values).all(-1)
    assert there.all()
    assert set(axes(load_scenario(small))) <= set(results.dims)
