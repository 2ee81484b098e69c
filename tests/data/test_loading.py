"""How a data set is split into training, validation and test samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from pydantic import TypeAdapter
from sklearn.datasets import load_digits
from support.decks import assign_samples
from support.small_sets import TRAIN, write_images

from otafl.core.errors import UserError
from otafl.data import DataSet, load, loading
from otafl.data.digits import Digits
from otafl.data.idx import FashionMnist
from otafl.data.partitions.label_free import Natural

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


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"train_samples": 13}, "data.train_samples: got 13; must be at most 12"),
        ({"validation": 0.01}, "data.validation: 0.01 of 12"),
    ],
)
def test_split_refuses(root: Path, keys: dict[str, object], message: str) -> None:
    source = TypeAdapter(FashionMnist).validate_python({"root": str(root), **keys})
    with pytest.raises(UserError, match=message):
        load(source)


def test_a_fingerprint_tells_data_sets_apart() -> None:
    """Settings that change no sample do not count."""
    source = Digits()
    mark = loading.compute_fingerprint(source)
    assert loading.compute_fingerprint(source.model_copy(update={"own_test": True})) == mark
    assert loading.compute_fingerprint(source.model_copy(update={"validation": 0.1})) != mark


def test_digits_are_those_of_scikit_learn() -> None:
    pixels, labels = load_digits(return_X_y=True)
    data = load(Digits())
    assert_array_equal(np.concatenate([data.x_train, data.x_test]) * 16, pixels)
    assert_array_equal(np.concatenate([data.y_train, data.y_test]), labels)


def test_root_comes_before_the_environment(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTAFL_DATA_DIR", str(root))
    assert len(load(FashionMnist()).y_train) == TRAIN
    with pytest.raises(UserError, match="elsewhere"):
        load(FashionMnist(root=str(tmp_path / "elsewhere")))


def test_owners_follow_their_samples() -> None:
    """Users 0, 1, 2 with 4, 2 and 9 training samples and 1, 2 and 3 test samples."""
    owner, owner_test = np.repeat([0, 1, 2], [4, 2, 9]), np.repeat([0, 1, 2], [1, 2, 3])
    x, x_test = (np.arange(n, dtype=np.float32)[:, None] for n in (15, 6))
    whole = DataSet(x, np.zeros(15, int), x_test, np.zeros(6, int), 1)
    whole = replace(whole, owner=owner, owner_test=owner_test)

    class Users(Digits):
        def read(self) -> DataSet:
            return whole

    assert_array_equal(load(Users(train_samples=5)).owner, [0, 0, 0, 0, 1])
    tail = load(Users(test="train_tail"))
    assert_array_equal(tail.owner, [0] * 4 + [1] * 2 + [2] * 3)
    assert_array_equal(tail.owner_test, [2] * 6)
    assert_array_equal(load(Users(validation=0.2)).owner, [0] * 4 + [1] * 2 + [2] * 6)
    pooled = load(Users(test="per_device"))
    parts = assign_samples(Natural(), pooled.y_train, 3, np.random.default_rng(0), pooled.owner)
    assert [part.tolist() for part in parts] == [
        [0, 1, 2, 3, 15],
        [4, 5, 16, 17],
        [*range(6, 15), 18, 19, 20],
    ]
