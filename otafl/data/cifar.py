"""CIFAR-10 and CIFAR-100 in their Python version: pickled batches of arrays and plain containers.

The MD5 sums of the archives are those of torchvision.
"""

from __future__ import annotations

import codecs
import importlib
import pickle
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from otafl.core.errors import UserError
from otafl.core.files import open_regular
from otafl.data.base import DataSource
from otafl.data.dataset import Bytes, DataSet, Indices
from otafl.data.files import MAX_BYTES, Download, Files, Root, wrap_read_errors
from otafl.data.pixels import scale_images, shift_and_scale

_PIXELS = 3 * 32 * 32


def make_archive_files(name: str, folder: str, size: str, md5: str, *inside: str) -> Files:
    """Return the files of a CIFAR data set.

    Parameters
    ----------
    name : str
        Name in the address of the archive.
    folder : str
        Folder that the archive unpacks to.
    size : str
        Size of the download, as a text.
    md5 : str
        MD5 sum of the archive.
    *inside : str
        Files in the folder.

    Returns
    -------
    Files
        The archive, and the files to take out of it.
    """
    url = f"https://www.cs.toronto.edu/~kriz/{name}-python.tar.gz"
    members = tuple(f"{folder}/{file}" for file in inside)
    download = Download(url, f"md5:{md5}", members, extract_dir="..")
    return Files(folder, size, (download,))


class Cifar(DataSource):
    """Samples x [n, 3, 32, 32] in red, green and blue, with the official split."""

    files: ClassVar[Files]
    label_key: ClassVar[str]
    """Key of the labels in a batch."""
    batches: ClassVar[tuple[str, ...]]
    """Files, of which the last is the test set."""
    channel_mean: ClassVar[tuple[float, float, float]]
    channel_deviation: ClassVar[tuple[float, float, float]]
    """Moments of the channels, with which pixels in [0, 1] are standardised."""
    input_shape: ClassVar[tuple[int, ...]] = (3, 32, 32)
    classes: ClassVar[int]

    root: Root = None
    pixel_scale: Literal["unit", "raw", "signed", "standardised"] = "unit"
    """scale of the pixels: unit, [0, 1]; raw, 0 to 255; signed, [-1, 1]; standardised, with the
    usual means and deviations of the channels"""

    def read(self) -> DataSet:
        folder = self.files.locate(self.name, self.root)
        read = [read_batch(folder / name, self.label_key, self.classes) for name in self.batches]
        train = np.concatenate([pixels for pixels, _ in read[:-1]])
        y_train = np.concatenate([y for _, y in read[:-1]])
        test, y_test = read[-1]
        train, test = (pixels.reshape(-1, *self.input_shape) for pixels in (train, test))
        if self.pixel_scale == "standardised":
            moments = self.channel_mean, self.channel_deviation
            mean, deviation = (255.0 * np.array(one)[:, None, None] for one in moments)
            x_train, x_test = shift_and_scale(train, test, mean, 1.0 / deviation)
        else:
            x_train, x_test = scale_images(train, test, self.pixel_scale)
        return DataSet(x_train, y_train, x_test, y_test, self.classes)


def read_batch(path: Path, labels: str, classes: int) -> tuple[Bytes, Indices]:
    """Read the images and labels of a batch.

    Parameters
    ----------
    path : Path
        Pickled batch.
    labels : str
        Key of the labels.
    classes : int
        Number of classes.

    Returns
    -------
    images : ndarray, uint8 [n, 3072]
        Red, green and blue pixels of each image.
    labels : ndarray, int64 [n]
        Their labels.

    Raises
    ------
    UserError
        If the file is no such batch.
    """
    with (
        wrap_read_errors(
            path, "not a CIFAR batch", Exception
        ),  # a broken pickle can raise any exception
        open_regular(path, MAX_BYTES) as file,
    ):
        content = _Batches(file, encoding="bytes").load()
    if not isinstance(content, dict) or not {b"data", labels.encode()} <= content.keys():
        raise UserError(f"{path}: not a CIFAR batch: must have the keys 'data' and {labels!r}")
    pixels, y = content[b"data"], content[labels.encode()]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
        raise UserError(f"{path}: 'data' must be an array of bytes")
    if pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise UserError(f"{path}: 'data' has shape {list(pixels.shape)}; must be [n, {_PIXELS}]")
    if not isinstance(y, list) or not all(type(one) is int and 0 <= one < classes for one in y):
        raise UserError(f"{path}: {labels!r} must be a list of numbers from 0 to {classes - 1}")
    if len(y) != len(pixels):
        raise UserError(f"{path}: has {len(pixels)} images but {len(y)} labels")
    return pixels, np.array(y, np.int64)


class _Batches(pickle.Unpickler):
    """Unpickler that makes only arrays and plain containers."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes in this format
            return codecs.encode
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            core = "numpy._core" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "numpy.core"
            return importlib.import_module(f"{core}.multiarray")._reconstruct
        raise pickle.UnpicklingError(f"it needs {module}.{name}, which no batch contains")


class Cifar10(Cifar):
    """CIFAR-10: 50,000 + 10,000 colour images of 32x32 pixels in 10 classes.

    References
    ----------
    Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images".
    """

    batches: ClassVar = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
    files: ClassVar = make_archive_files(
        "cifar-10",
        "cifar-10-batches-py",
        "170 MB",
        "c58f30108f718f92721af3b95e74349a",
        *batches,
    )
    label_key: ClassVar = "labels"
    channel_mean: ClassVar = (0.4914, 0.4822, 0.4465)
    channel_deviation: ClassVar = (0.2023, 0.1994, 0.2010)
    classes: ClassVar = 10

    name: Literal["cifar10"] = "cifar10"


class Cifar100(Cifar):
    """CIFAR-100: 50,000 + 10,000 colour images of 32x32 pixels in 100 classes.

    The classes are the fine labels.

    References
    ----------
    Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images".
    """

    batches: ClassVar = ("train", "test")
    files: ClassVar = make_archive_files(
        "cifar-100", "cifar-100-python", "169 MB", "eb9058c3a382ffc7106e4002c42a8d85", *batches
    )
    label_key: ClassVar = "fine_labels"
    channel_mean: ClassVar = (0.5071, 0.4867, 0.4408)
    channel_deviation: ClassVar = (0.2675, 0.2565, 0.2761)
    classes: ClassVar = 100

    name: Literal["cifar100"] = "cifar100"
