"""FEMNIST: characters of NIST Special Database 19, by writer (Caldas et al. 2018, LEAF). Either
LEAF's own JSON files, which its `preprocess.sh` makes in hours out of NIST's images, or what
TensorFlow Federated made of them and hosts: 3,400 writers, 671,585 + 77,483 characters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otafl.data import leaf
from otafl.data.config import FemnistConfig
from otafl.data.dataset import DataSet
from otafl.data.federated_sqlite import FederatedFile
from otafl.data.sources import Archives, Download, locate

_FILE = "emnist_all.sqlite"
_SPLITS = ("all_train", "all_test")
_PIXELS = 28 * 28
_FRACTION = 0.05  # of the hosted file, which is whole; LEAF's files are sampled already


def _lacks(folder: Path) -> str | None:
    there = leaf.folder_of(folder) is not None or (folder / _FILE).is_file()
    return None if there else _FILE


FILES = Archives(
    "femnist",
    "femnist",
    "749,068 characters of 28x28 pixels by 3,400 writers, 171 MB, 4.7 GB unpacked",
    (
        Download(
            f"https://storage.googleapis.com/tff-datasets-public/{_FILE}.lzma",
            "sha256:c3aaf91b4cf4e69d53d81627ad119eccdc878ff906f68e66063ff10f67faad48",
            {f"{_FILE}.lzma": _FILE},
        ),
    ),
    _lacks,
)


def load(config: FemnistConfig) -> DataSet:
    """x [n, 784] in [0, 1], 1 being the background, in the order of the writers. UserError if a
    file is missing or corrupt."""
    folder = locate(FILES, config.root)
    generator = np.random.default_rng(config.sample_seed)
    made_here = leaf.folder_of(folder)
    if made_here is not None:
        users = leaf.read(made_here, _images, generator)
        sizes = [user.size for user in users]
        chosen = leaf.sample(sizes, config.fraction or 1.0, config.min_samples, generator)
        users = [users[i] for i in chosen]
    else:
        users = _hosted(folder / _FILE, config, generator)
    return leaf.data_set(users, config.classes)


def _hosted(path: Path, config: FemnistConfig, generator: np.random.Generator) -> list[leaf.User]:
    with FederatedFile(path) as file:
        sizes = file.sizes(_SPLITS)
        names, counts = list(sizes), list(sizes.values())
        fraction = config.fraction or _FRACTION
        chosen = leaf.sample(counts, fraction, config.min_samples, generator)
        return [_writer(file, names[i]) for i in chosen]


def _writer(file: FederatedFile, name: str) -> leaf.User:
    train, test = (file.images(split, name, _PIXELS) for split in _SPLITS)
    return leaf.User(*train, *test)


def _images(x: list[Any]) -> NDArray[np.float32]:
    images = np.asarray(x, np.float32) if x else np.empty((0, _PIXELS), np.float32)
    if images.ndim != 2 or images.shape[1] != _PIXELS:
        raise ValueError(f"its 'x' have shape {list(images.shape)}; wanted [n, {_PIXELS}]")
    return images
