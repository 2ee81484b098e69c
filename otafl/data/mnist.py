"""MNIST (LeCun, Cortes, Burges), and the loading of image sets that are stored as it is: four IDX
files in one folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from otafl.core.errors import UserError
from otafl.data.config import ImageDataConfig
from otafl.data.dataset import DataSet
from otafl.data.idx import read_images, read_labels
from otafl.data.pixels import scaled
from otafl.data.sources import Download, locate


@dataclass(frozen=True)
class ImageFiles:
    """Where an image set comes from and lies. folder: its own, inside the root. md5: of the
    official files, by file name: training images, training labels, test images, test labels."""

    name: str
    folder: str
    description: str
    url: str
    md5: Mapping[str, str]

    @property
    def downloads(self) -> tuple[Download, ...]:
        return tuple(Download(self.url + file, f"md5:{md5}") for file, md5 in self.md5.items())

    def missing(self, folder: Path) -> str | None:
        return next((name for name in self.md5 if _present(folder / name) is None), None)


FILES = ImageFiles(
    name="mnist",
    folder="mnist",
    description="60,000 + 10,000 digits of 28x28 pixels, 12 MB",
    # The authors' own site no longer serves the files; this is the mirror that torchvision uses.
    url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    md5={
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
)


def load(config: ImageDataConfig) -> DataSet:
    """MNIST with its official split. UserError if a file is missing or corrupt."""
    return load_images(FILES, config)


def load_images(files: ImageFiles, config: ImageDataConfig) -> DataSet:
    """An image set of ten classes with its official split, x [n, pixels]."""
    folder = locate(files, config.root)
    paths = [path for path in (_present(folder / name) for name in files.md5) if path is not None]
    train, y_train = _pair(*paths[:2])
    test, y_test = _pair(*paths[2:])
    if train.shape[1] != test.shape[1]:
        raise UserError(
            f"{paths[0]} holds images of {train.shape[1]} pixels but {paths[2]} of {test.shape[1]}"
        )
    x_train, x_test, black = scaled(train, test, config.pixel_scale)
    return DataSet(x_train, y_train, x_test, y_test, classes=10, black=black)


def _present(path: Path) -> Path | None:
    """The file, gzipped or unpacked."""
    return next((p for p in (path, path.with_suffix("")) if p.is_file()), None)


def _pair(images: Path, labels: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    pixels, y = read_images(images), read_labels(labels)
    if len(pixels) != len(y):
        raise UserError(f"{images} holds {len(pixels)} images but {labels} {len(y)} labels")
    return pixels, y.astype(np.int64)
