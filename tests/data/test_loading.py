"""How a data set is split into training, validation and test samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from pydantic import TypeAdapter
from support.small_sets import write_images

from otafl.core.errors import UserError
from otafl.data import load, load_cached, loading
from otafl.data.digits import Digits
from otafl.data.fashion_mnist import FashionMnist

pytestmark = pytest.mark.exact


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_images(tmp_path / "fashion-mnist")
    return tmp_path


def test_split_by_hand(root: Path) -> None:
    """12 training samples: the tail of 4 becomes the test set, the first 6 of the other 8 are
    kept, and the last third of those validates."""
    source = FashionMnist(
        root=str(root), test="train_tail", train_samples=6, validation=1 / 3, pixel_scale="raw"
    )
    data = load(source)
    assert_array_equal(data.y_train, [0, 1, 2, 3])
    assert_array_equal(data.y_validation, [4, 5])
    assert_array_equal(data.y_test, [8, 9, 0, 1])
    first_pixels = [x[:, 0].tolist() for x in (data.x_train, data.x_validation, data.x_test)]
    assert first_pixels == [[0, 7, 14, 21], [28, 35], [56, 63, 70, 77]]


def test_parts_share_no_sample() -> None:
    official, data = load(Digits()), load(Digits(test="train_tail", validation=0.1))
    parts = [data.x_train, data.x_validation, data.x_test]
    assert_array_equal(np.concatenate(parts), official.x_train)
    assert [len(part) for part in parts] == [969, 108, 360]


def test_per_device_pools_the_test_samples() -> None:
    official, data = load(Digits()), load(Digits(test="per_device"))
    assert_array_equal(data.x_train, np.concatenate([official.x_train, official.x_test]))
    assert_array_equal(data.y_train, np.concatenate([official.y_train, official.y_test]))
    assert data.x_test.shape == (0, 64)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"train_samples": 13}, "data.train_samples: got 13; must be at most 12"),
        (
            {"train_samples": 9, "test": "train_tail"},
            "data.train_samples: got 9; must be at most 8",
        ),
        ({"validation": 0.01}, "data.validation: 0.01 of 12"),
        ({"validation": 0.99}, "data.validation: 0.99 of 12"),
    ],
)
def test_split_refuses(root: Path, keys: dict[str, object], message: str) -> None:
    source = TypeAdapter(FashionMnist).validate_python({"root": str(root), **keys})
    with pytest.raises(UserError, match=message):
        load(source)


def test_the_last_two_are_kept() -> None:
    loading._load_from_cache.cache_clear()
    first = load_cached(Digits())
    assert load_cached(Digits()) is first
    load_cached(Digits(validation=0.1))
    load_cached(Digits(validation=0.2))
    assert load_cached(Digits()) is not first


def test_a_fingerprint_tells_data_sets_apart() -> None:
    """One label, the split, the shape; settings that change no sample do not count."""
    source = Digits()
    data = loading.load(source)
    mark = loading._hash_dataset(data)
    assert loading.compute_fingerprint(source) == mark
    assert loading.compute_fingerprint(source.model_copy(update={"own_test": True})) == mark
    labels = data.y_train.copy()
    labels[-1] = (labels[-1] + 1) % 10
    flat = data.x_train.reshape(2, -1)
    others = [replace(data, y_train=labels), replace(data, x_train=flat)]
    marks = {loading._hash_dataset(one) for one in others}
    marks.add(loading.compute_fingerprint(source.model_copy(update={"validation": 0.1})))
    assert len(marks | {mark}) == 4
