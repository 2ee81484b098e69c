"""MNIST (LeCun, Cortes, Burges), and the loading of image sets that are stored as it is: four IDX
files in one folder. Loading never downloads; `otafl.data.fetch` does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pooch
from numpy.typing import NDArray

from otafl.data.config import ImageDataConfig
from otafl.data.dataset import DataSet
from otafl.data.idx import read_images, read_labels
from otafl.errors import UserError

DATA_DIR = "OTAFL_DATA_DIR"
"""The environment variable that names the folder of the data sets' folders."""
SYSTEM_ROOT = Path("/usr/share/datasets")
"""Where Debian's package dataset-fashion-mnist puts it."""


@dataclass(frozen=True)
class ImageFiles:
    """Where an image set comes from and lies. folder: its own, inside the root. md5: of the
    official files, by file name: training images, training labels, test images, test labels."""

    name: str
    folder: str
    description: str
    url: str
    md5: Mapping[str, str]


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
    """An image set of ten classes with its official split, x [n, pixels] in [0, 1] or 0..255."""
    train_x, train_y, test_x, test_y = locate(files, config.root)
    x_train, y_train = _pair(train_x, train_y, config.pixel_scale == "unit")
    x_test, y_test = _pair(test_x, test_y, config.pixel_scale == "unit")
    return DataSet(x_train, y_train, x_test, y_test, classes=10)


def home(files: ImageFiles, root: str | None) -> Path:
    """The set's folder in root, else in $OTAFL_DATA_DIR, else in the user's cache folder."""
    chosen = root or os.environ.get(DATA_DIR) or pooch.os_cache("otafl")
    return Path(chosen).expanduser() / files.folder


def find(files: ImageFiles, root: str | None) -> list[Path] | None:
    """The paths of the four files in the first folder that has them all, or None."""
    for folder in _folders(files, root):
        paths = [_present(folder / name) for name in files.md5]
        found = [path for path in paths if path is not None]
        if len(found) == len(paths):
            return found
    return None


def locate(files: ImageFiles, root: str | None) -> list[Path]:
    """The paths of the four files. UserError if one is missing."""
    found = find(files, root)
    if found is not None:
        return found
    first, *others = _folders(files, root)
    missing = next(name for name in files.md5 if _present(first / name) is None)
    also = "".join(f" (nor is the set in {folder})" for folder in others)
    raise UserError(
        f"data: {missing} of {files.name} is not in {first}{also}: "
        f"`otafl data get {files.name}` downloads it, or point data.root or ${DATA_DIR} to the "
        f"folder that holds a folder {files.folder!r} with the files"
    )


def _folders(files: ImageFiles, root: str | None) -> list[Path]:
    system = [] if root else [SYSTEM_ROOT / files.folder]
    return [home(files, root), *system]


def _present(path: Path) -> Path | None:
    """The file, gzipped or unpacked."""
    return next((p for p in (path, path.with_suffix("")) if p.is_file()), None)


def _pair(images: Path, labels: Path, unit: bool) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    pixels, y = read_images(images), read_labels(labels)
    if len(pixels) != len(y):
        raise UserError(f"{images} holds {len(pixels)} images but {labels} {len(y)} labels")
    x = pixels.astype(np.float32)
    if unit:
        x /= 255.0
    return x, y.astype(np.int64)
