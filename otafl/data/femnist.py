"""FEMNIST: 749,068 handwritten digits and letters of 28x28 pixels by 3,400 writers.

They are characters of NIST Special Database 19, with pixels in [0, 1] and a background of 1. The
files are LEAF's own JSON files in the folder femnist, which its `preprocess.sh` makes from NIST's
images in hours. Or they are those that TensorFlow Federated made from LEAF's and hosts, with
671,585 + 77,483 characters. `otafl data get` downloads the latter.

References
----------
Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from otafl.core.arrays import to_numbers, to_single
from otafl.data import leaf
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet, Floats
from otafl.data.federated_sqlite import FederatedFile
from otafl.data.files import Download, Files, Root

_FILE = "emnist_all.sqlite"
_SPLITS = ("all_train", "all_test")
_PIXELS = 28 * 28


def _find_missing(folder: Path) -> str | None:
    """Return the hosted file if the folder has neither it nor LEAF's files."""
    there = leaf.find_folder(folder) is not None or (folder / _FILE).is_file()
    return None if there else _FILE


class Femnist(DataSource):
    """Samples x [n, 784] in grey, in the order of the writers."""

    files: ClassVar[Files] = Files(
        "femnist",
        "171 MB, 4.7 GB unpacked",
        (
            Download(
                f"https://storage.googleapis.com/tff-datasets-public/{_FILE}.lzma",
                "sha256:c3aaf91b4cf4e69d53d81627ad119eccdc878ff906f68e66063ff10f67faad48",
                {f"{_FILE}.lzma": _FILE},
            ),
        ),
        _find_missing,
    )
    has_users: ClassVar[bool] = True
    input_shape: ClassVar[tuple[int, ...]] = (_PIXELS,)
    classes: ClassVar[int] = 62

    name: Literal["femnist"] = "femnist"
    root: Root = None
    fraction: leaf.Fraction = None
    min_samples: leaf.MinSamples = 2
    sample_seed: leaf.SampleSeed = 0

    def read(self) -> DataSet:
        return leaf.build_dataset(
            leaf.load_sampled_users(self, _to_images, _open_hosted), self.classes
        )


@contextlib.contextmanager
def _open_hosted(folder: Path, generator: np.random.Generator) -> Iterator[leaf.Opened]:
    """Open TensorFlow Federated's file, with the sizes of all writers."""
    with FederatedFile(folder / _FILE) as file:
        sizes = file.count_samples(_SPLITS)
        names = list(sizes)

        def read_writer(index: int) -> leaf.User:
            train, test = (file.read_images(split, names[index], _PIXELS) for split in _SPLITS)
            return leaf.User(*train, *test)

        yield list(sizes.values()), read_writer


def _to_images(x: list[Any]) -> Floats:
    """Return a writer's images [n, 784]."""
    numbers = to_numbers(x, "'x'", "lists of numbers") if x else np.empty((0, _PIXELS))
    images = to_single(numbers, "'x'", "pixels")
    if images.ndim != 2 or images.shape[1] != _PIXELS:
        raise ValueError(f"'x' has shape {list(images.shape)}; must be [n, {_PIXELS}]")
    return images
