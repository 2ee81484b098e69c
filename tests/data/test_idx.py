"""The IDX format, MNIST and Fashion-MNIST in it, and scales of images that are bytes."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.small_sets import TRAIN, encode_idx, write_images

from otafl.core.errors import UserError
from otafl.data import load
from otafl.data.idx import FashionMnist, Mnist, read
from otafl.data.pixels import scale_images

pytestmark = pytest.mark.exact


def test_idx_by_hand(tmp_path: Path) -> None:
    """The format's bytes, written out: two images of 1 x 3 pixels and two labels."""
    images = b"\0\0\x08\x03" + b"\0\0\0\x02" + b"\0\0\0\x01" + b"\0\0\0\x03" + bytes(range(6))
    labels = b"\0\0\x08\x01" + b"\0\0\0\x02" + b"\x07\xff"
    (tmp_path / "i.gz").write_bytes(gzip.compress(images))
    (tmp_path / "l.gz").write_bytes(gzip.compress(labels))
    assert_array_equal(read(tmp_path / "i.gz", "images"), [[0, 1, 2], [3, 4, 5]])
    assert_array_equal(read(tmp_path / "l.gz", "labels"), [7, 255])


GOOD = encode_idx(np.zeros((2, 3, 3)))


def zip_up(content: bytes) -> bytes:
    """The gzipped content, the same bytes at all times: they name tests."""
    return gzip.compress(content, mtime=0)


ZIPPED = zip_up(GOOD)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (zip_up(GOOD[:-1]), "truncated.*2 x 3 x 3 = 18 bytes.*17 follow"),
        (zip_up(GOOD + b"\0"), "too long.*19 follow"),
        (zip_up(GOOD[:9]), "truncated: 9 bytes"),
        (zip_up(b"\0\0\x09\x03" + GOOD[4:]), "magic number is 0x00000903; must be 0x00000803"),
        (GOOD, "no gzip file"),
        (ZIPPED[:-9], "truncated or corrupt"),
        (ZIPPED[:12] + b"\xff\xff" + ZIPPED[14:], "truncated or corrupt"),
    ],
)
def test_idx_refuses(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read(path, "images")
    assert str(path) in str(error.value)


def test_image_files(tmp_path: Path) -> None:
    arrays = write_images(tmp_path / "mnist")
    raw = load(Mnist(root=str(tmp_path), pixel_scale="raw"))
    unit = load(Mnist(root=str(tmp_path)))
    images = arrays["train-images-idx3-ubyte"].reshape(TRAIN, 784)
    assert_array_equal(raw.x_train, images)
    assert_array_equal(unit.x_train, images.astype(np.float32) / np.float32(255))
    assert_array_equal(unit.y_test, arrays["t10k-labels-idx1-ubyte"])
    assert (unit.x_train.dtype, unit.y_train.dtype) == (np.float32, np.int64)
    assert unit.classes == 10
    assert unit.x_train.max() == 1.0
    assert unit.x_validation.shape == (0, 784)
    assert unit.y_validation.shape == (0,)


def test_counts_of_images_and_labels_must_agree(tmp_path: Path) -> None:
    write_images(tmp_path / "fashion-mnist")
    path = tmp_path / "fashion-mnist" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(encode_idx(np.zeros(TRAIN - 1))))
    with pytest.raises(UserError, match=r"12 images but .*train-labels.* 11 labels"):
        load(FashionMnist(root=str(tmp_path)))


def test_scales_of_grey_images() -> None:
    """By hand: pixels 0, 2, 4, 6 of three images, and one pixel that never changes."""
    train, test = np.array([[0, 9], [2, 9]], np.uint8), np.array([[4, 9]], np.uint8)
    values = np.array([0, 9, 2, 9, 4, 9])
    one = scale_images(train, test, "standardised")
    expected = (values - values.mean()) / (values.std() + 0.001)
    assert_allclose(np.concatenate([one[0], one[1]]).ravel(), expected, rtol=1e-5)
    signed = scale_images(train, test, "signed")
    assert_allclose(signed[0], train / 127.5 - 1, atol=1e-6)
