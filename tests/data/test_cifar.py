"""CIFAR-10 and CIFAR-100 from small files in the format of the official ones, and their scales."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.small_sets import EACH, encode_cifar_batch, make_batch, write_cifar10

from otafl.core.errors import UserError
from otafl.data import load
from otafl.data.cifar import Cifar10, Cifar100, read_batch

pytestmark = pytest.mark.exact


def test_cifar10(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    data = load(Cifar10(root=str(tmp_path), pixel_scale="raw"))
    train = np.concatenate([make_batch(i)[0] for i in range(1, 6)])
    assert_array_equal(data.x_train, train.reshape(-1, 3, 32, 32))
    assert_array_equal(data.y_train, [label for i in range(1, 6) for label in make_batch(i)[1]])
    assert_array_equal(data.x_test.reshape(EACH, -1), make_batch(0)[0])
    assert_array_equal(data.y_test, [0, 1, 2])
    # Red comes first, row by row.
    assert data.x_train[0, 1, 0, 5] == train[0, 1024 + 5]
    assert data.x_train[0, 0, 2, 0] == train[0, 64]
    assert (data.classes, data.x_train.dtype) == (10, np.float32)
    assert data.input_shape == Cifar10.input_shape


def test_cifar100(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, number in (("train", 1), ("test", 2)):
        pixels, labels = make_batch(number)
        fine = [90 + one for one in labels]
        content = encode_cifar_batch(pixels, coarse_labels=labels, fine_labels=fine)
        (folder / name).write_bytes(content)
    data = load(Cifar100(root=str(tmp_path)))
    assert_array_equal(data.y_train, [91, 92, 93])
    assert_array_equal(data.y_test, [92, 93, 94])
    assert_allclose(data.x_test.reshape(EACH, -1), make_batch(2)[0] / 255, rtol=1e-6)
    assert data.classes == 100


class Harmful:
    def __reduce__(self) -> Any:
        return os.mkdir, ("harmed",)


GOOD = encode_cifar_batch(*make_batch(0)[:1], labels=make_batch(0)[1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD[:-40], "not a CIFAR batch"),
        (pickle.dumps(Harmful()), "it needs .*mkdir, which no batch contains"),
        (pickle.dumps([1, 2]), "must have the keys 'data' and 'labels'"),
        (encode_cifar_batch(make_batch(0)[0], labels=[1, 2]), "3 images but 2 labels"),
        (
            encode_cifar_batch(make_batch(0)[0], labels=[1, 2, 10]),
            "'labels' must be a list of numbers from 0 to 9",
        ),
        (
            encode_cifar_batch(make_batch(0)[0][:, :3000], labels=[1, 2, 3]),
            r"shape \[3, 3000\]; must be \[n, 3072\]",
        ),
        (pickle.dumps({b"data": [1], b"labels": [1]}, 2), "'data' must be an array of bytes"),
    ],
)
def test_what_is_no_batch(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "batch"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read_batch(path, "labels", 10)
    assert str(path) in str(error.value)
    assert not Path("harmed").exists()


def test_standardised_images(tmp_path: Path) -> None:
    """By the usual means and deviations of the channels."""
    write_cifar10(tmp_path / "cifar-10-batches-py")
    data = load(Cifar10(root=str(tmp_path), pixel_scale="standardised"))
    mean, deviation = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2023, 0.1994, 0.2010])
    unit = make_batch(1)[0].reshape(EACH, 3, 32, 32) / 255
    expected = (unit.transpose(0, 2, 3, 1) - mean) / deviation
    assert_allclose(data.x_train[:EACH].transpose(0, 2, 3, 1), expected, rtol=1e-5, atol=1e-5)
