"""Grey images in the IDX format: MNIST and Fashion-MNIST.

A file is a big-endian magic number, one 32-bit size for each dimension, and unsigned bytes. A data
set is four such gzipped files in one folder.

References
----------
LeCun, Cortes, Burges, "The MNIST database", section "File formats".
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from otafl.core.errors import UserError
from otafl.core.files import read_bytes
from otafl.data.base import DataSource
from otafl.data.dataset import Bytes, DataSet, Indices
from otafl.data.files import MAX_BYTES, Download, Files, Root, wrap_read_errors
from otafl.data.pixels import Scale, scale_images

_MAGIC = {"labels": 0x0801, "images": 0x0803}  # unsigned bytes, in one dimension and in three


def make_image_files(folder: str, size: str, url: str, md5: Mapping[str, str]) -> Files:
    """Return the files of a data set in this format.

    Parameters
    ----------
    folder : str
        Folder of the data set.
    size : str
        Size of the downloads, as a text.
    url : str
        Address of the folder with the files.
    md5 : Mapping of str to str
        File name -> MD5 sum: training images, training labels, test images, test labels.

    Returns
    -------
    Files
        The four files.
    """
    downloads = tuple(Download(url + file, f"md5:{digest}") for file, digest in md5.items())
    return Files(folder, size, downloads)


class GreyImages(DataSource):
    """Samples x [n, 784] in grey, with the official split."""

    files: ClassVar[Files]
    input_shape: ClassVar[tuple[int, ...]] = (784,)
    classes: ClassVar[int] = 10

    root: Root = None
    pixel_scale: Scale = "unit"
    """scale of the pixels: unit, [0, 1]; raw, 0 to 255; signed, [-1, 1]; standardised, minus the
    mean of all pixels and over their deviation + 0.001"""

    def read(self) -> DataSet:
        folder = self.files.locate(self.name, self.root)
        paths = [folder / download.file for download in self.files.downloads]
        train, y_train = _read_pair(*paths[:2])
        test, y_test = _read_pair(*paths[2:])
        if train.shape[1] != test.shape[1]:
            raise UserError(
                f"{paths[0]} has images of {train.shape[1]} pixels but {paths[2]} of "
                f"{test.shape[1]}"
            )
        x_train, x_test = scale_images(train, test, self.pixel_scale)
        return DataSet(x_train, y_train, x_test, y_test, self.classes)


def _read_pair(images: Path, labels: Path) -> tuple[Bytes, Indices]:
    """Read images [n, pixels] and their labels [n]."""
    pixels, y = read(images, "images"), read(labels, "labels")
    if len(pixels) != len(y):
        raise UserError(f"{images} has {len(pixels)} images but {labels} has {len(y)} labels")
    return pixels, y.astype(np.int64)


def read(path: Path, kind: str) -> Bytes:
    """Read a gzipped IDX file.

    Parameters
    ----------
    path : Path
        The file.
    kind : str
        "images" or "labels".

    Returns
    -------
    ndarray, uint8
        Images [n, rows * columns] or labels [n], read-only.

    Raises
    ------
    UserError
        If the file is not exactly an IDX file of this kind.
    """
    magic = _MAGIC[kind]
    with wrap_read_errors(path):
        packed = io.BytesIO(read_bytes(path, MAX_BYTES))
    try:
        content = gzip.GzipFile(fileobj=packed).read(MAX_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: no gzip file, or truncated or corrupt: {error}") from error
    dimensions = magic & 0xFF
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise UserError(f"{path}: truncated: {len(content)} bytes are less than an IDX header")
    found, *sizes = struct.unpack(f">{1 + dimensions}I", content[:header])
    if found != magic:
        raise UserError(
            f"{path}: not an IDX file of {kind}: the magic number is 0x{found:08x}; "
            f"must be 0x{magic:08x}"
        )
    expected, held = math.prod(sizes), len(content) - header
    if held != expected:
        fault = "truncated" if held < expected else "too long"
        shape = " x ".join(str(size) for size in sizes)
        raise UserError(
            f"{path}: {fault}: its header announces {shape} = {expected} bytes of {kind}, and "
            f"{held} follow"
        )
    values = np.frombuffer(content, np.uint8, offset=header)
    return values.reshape(sizes[0], *([math.prod(sizes[1:])] if dimensions > 1 else []))


class Mnist(GreyImages):
    """MNIST: 60,000 + 10,000 handwritten digits of 28x28 pixels.

    References
    ----------
    LeCun, Bottou, Bengio, Haffner 1998, "Gradient-Based Learning Applied to Document Recognition".
    LeCun, Cortes, Burges, "The MNIST database".
    """

    files: ClassVar = make_image_files(
        folder="mnist",
        size="12 MB",
        # The authors' own site no longer serves the files; this is torchvision's mirror.
        url="https://ossci-datasets.s3.amazonaws.com/mnist/",
        md5={
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    )

    name: Literal["mnist"] = "mnist"


class FashionMnist(GreyImages):
    """Fashion-MNIST: 60,000 + 10,000 images of clothing, 28x28 pixels in 10 classes.

    URL and checksums are from the authors' README.

    References
    ----------
    Xiao, Rasul, Vollgraf 2017, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine
        Learning Algorithms", arXiv:1708.07747.
    """

    files: ClassVar = make_image_files(
        folder="fashion-mnist",
        size="31 MB",
        url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        md5={
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    )

    name: Literal["fashion_mnist"] = "fashion_mnist"
