"""CIFAR-10 (Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images"), and the
loading of both CIFAR sets from their Python version; checksums as in torchvision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from otafl.data.config import Cifar10Config, CifarConfig
from otafl.data.dataset import DataSet
from otafl.data.pickles import read_batch
from otafl.data.pixels import scaled
from otafl.data.sources import Archives, Download, first_missing, locate

_URL = "https://www.cs.toronto.edu/~kriz/"
_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
_MEAN = (0.4914, 0.4822, 0.4465)  # of the channels, pixels in [0, 1]
_DEVIATION = (0.2023, 0.1994, 0.2010)


def archives(
    name: str, folder: str, description: str, checksum: str, md5: dict[str, str]
) -> Archives:
    """A CIFAR set, its files in the folder that its archive unpacks to."""
    inside = {f"{folder}/{file}": file for file in md5}
    url = f"{_URL}{name.replace('cifar', 'cifar-')}-python.tar.gz"
    download = Download(url, f"md5:{checksum}", inside, md5)
    return Archives(name, folder, description, (download,), lambda at: first_missing(at, md5))


FILES = archives(
    "cifar10",
    "cifar-10-batches-py",
    "50,000 + 10,000 colour images of 32x32 pixels, 10 classes, 170 MB",
    "c58f30108f718f92721af3b95e74349a",
    {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
)


def load(config: Cifar10Config) -> DataSet:
    """CIFAR-10 with its official split. UserError if a file is missing or corrupt."""
    folder = locate(FILES, config.root)
    batches = [folder / name for name in (*_TRAIN, "test_batch")]
    return load_batches(batches, "labels", config, _MEAN, _DEVIATION)


def load_batches(
    paths: Sequence[Path],
    labels: str,
    config: CifarConfig,
    mean: Sequence[float],
    deviation: Sequence[float],
) -> DataSet:
    """x [n, 3, 32, 32] of the batches, the last one being the test set. mean, deviation: of the
    channels, by which pixels in [0, 1] are standardised."""
    read = [read_batch(path, labels, config.classes) for path in paths]
    train = np.concatenate([pixels for pixels, _ in read[:-1]])
    y_train = np.concatenate([y for _, y in read[:-1]])
    test, y_test = read[-1]
    if config.pixel_scale == "standardised":
        x_train, x_test, black = scaled(train, test, "unit")
    else:
        x_train, x_test, black = scaled(train, test, config.pixel_scale)
    x_train, x_test = (_images(x) for x in (x_train, x_test))
    if config.pixel_scale == "standardised":
        shift, factor = (_by_channel(values) for values in (mean, 1.0 / np.array(deviation)))
        for x in (x_train, x_test):
            x -= shift
            x *= factor
        black = -shift * factor
    return DataSet(x_train, y_train, x_test, y_test, config.classes, black=black)


def _images(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x.reshape(-1, 3, 32, 32)


def _by_channel(values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float32]:
    return np.asarray(values, np.float32)[:, None, None]
