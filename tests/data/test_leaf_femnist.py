"""FEMNIST from a small data set as flwrlabs/femnist has it; the package datasets reads it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from otafl.core.errors import UserError
from otafl.data import load
from otafl.data.leaf import Femnist

pytestmark = pytest.mark.exact

WRITERS = {"f0": 5, "f2": 4, "f1": 12}
"""Samples of each writer, in the order of the file."""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Image i of 21 is i everywhere, and its label 61 - i."""
    return write(tmp_path / "small")


def write(folder: Path, side: int = 28, drop: str | None = None, split: str = "train") -> str:
    datasets, image = pytest.importorskip("datasets"), pytest.importorskip("PIL.Image")
    count = sum(WRITERS.values())
    kinds = {
        "image": datasets.Image(),
        "writer_id": datasets.Value("string"),
        "character": datasets.ClassLabel(names=[str(i) for i in range(62)]),
    }
    columns = {
        "image": [image.fromarray(np.full((side, side), i, np.uint8)) for i in range(count)],
        "writer_id": [name for name, number in WRITERS.items() for _ in range(number)],
        "character": [61 - i for i in range(count)],
    }
    kept = [name for name in kinds if name != drop]
    features = datasets.Features({name: kinds[name] for name in kept})
    whole = datasets.Dataset.from_dict({name: columns[name] for name in kept}, features=features)
    datasets.DatasetDict({split: whole}).save_to_disk(str(folder))
    return str(folder)


def test_writers_in_alphabetical_order(folder: str) -> None:
    """A tenth of each one's samples tests, at least one."""
    data = load(Femnist(dataset=folder, fraction=1.0))
    assert (data.x_train.shape, data.x_train.dtype, data.classes) == ((17, 784), np.float32, 62)
    assert_array_equal(data.owner, [0] * 4 + [1] * 10 + [2] * 3)
    assert_array_equal(data.owner_test, [0, 1, 1, 2])
    held = {0: range(5), 1: range(9, 21), 2: range(5, 9)}
    assert data.owner is not None
    assert data.owner_test is not None
    for writer, expected in held.items():
        own = data.x_train[data.owner == writer], data.x_test[data.owner_test == writer]
        labels = data.y_train[data.owner == writer], data.y_test[data.owner_test == writer]
        for x, y in zip(own, labels, strict=True):
            assert_array_equal(x, np.repeat((61 - y)[:, None], 784, 1).astype(np.float32) / 255)
        assert sorted(61 - np.concatenate(labels)) == list(expected)
    again = load(Femnist(dataset=folder, fraction=1.0))
    assert_array_equal(again.y_test, data.y_test)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"drop": "writer_id"}, "data.dataset: no column 'writer_id'; columns: image"),
        ({"side": 9}, r"images of writer 'f0' are \[9, 9\]; expected grey ones of \[28, 28\]"),
        ({"split": "all"}, "has the splits all; expected 'train' with all samples"),
    ],
)
def test_another_data_set_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        load(Femnist(dataset=write(tmp_path / "other", **change), fraction=1.0))


def test_without_the_package_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"'femnist' needs a package .* 'otafl\[hf\]'"):
        load(Femnist())
