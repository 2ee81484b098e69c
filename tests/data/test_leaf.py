"""FEMNIST from small files in LEAF's JSON format: users, their training and test samples, and how
users are sampled.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from support.decks import assign_samples
from support.small_sets import (
    WRITERS,
    list_expected_pixels,
    make_image,
    make_leaf_content,
    take_first_pixels,
    write,
    write_femnist,
)

from otafl.core.errors import UserError
from otafl.data import leaf, load
from otafl.data.femnist import Femnist
from otafl.data.partitions.natural import Natural

pytestmark = pytest.mark.exact


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_femnist(tmp_path)


def test_leafs_own_split(root: Path) -> None:
    data = load(Femnist(root=str(root)))
    assert (data.x_train.shape, data.x_test.shape) == ((15, 784), (6, 784))
    assert (data.classes, data.x_train.dtype, data.y_train.dtype) == (62, np.float32, np.int64)
    assert_array_equal(data.owner, [0] * 4 + [1] * 2 + [2] * 9)
    assert_array_equal(data.owner_test, [0, 1, 1, 2, 2, 2])
    for part, x in enumerate((data.x_train, data.x_test)):
        assert take_first_pixels(x) == list_expected_pixels(part, WRITERS)
    assert_array_equal(data.y_test, [60, 60, 59, 60, 59, 58])
    assert_array_equal(data.x_train[0], np.array(make_image(0), np.float32))


def test_natural_partition_of_it(root: Path) -> None:
    """Pooled, a device's training samples come before its test samples."""
    data = load(Femnist(root=str(root), test="per_device"))
    assert len(data.y_train) == 21
    parts = assign_samples(Natural(), data.y_train, 3, np.random.default_rng(0), data.owner)
    assert [part.tolist() for part in parts] == [
        [0, 1, 2, 3, 15],
        [4, 5, 16, 17],
        [*range(6, 15), 18, 19, 20],
    ]


def test_owners_follow_the_samples(root: Path) -> None:
    config = {"root": str(root)}
    data = load(Femnist(**config, train_samples=5))
    assert_array_equal(data.owner, [0, 0, 0, 0, 1])
    data = load(Femnist(**config, test="train_tail"))
    assert_array_equal(data.owner, [0] * 4 + [1] * 2 + [2] * 3)
    assert_array_equal(data.owner_test, [2] * 6)
    data = load(Femnist(**config, validation=0.2))
    assert_array_equal(data.owner, [0] * 4 + [1] * 2 + [2] * 6)


@pytest.mark.parametrize("folder", ["all_data", "sampled_data", "rem_user_data", "data/all_data"])
def test_unsplit_files(tmp_path: Path, folder: str) -> None:
    """A test sample of each writer, at least; the same whenever it is loaded."""
    write(tmp_path / "femnist" / folder, "all_data.json", make_leaf_content(0, list(WRITERS)))
    data = load(Femnist(root=str(tmp_path)))
    assert data.owner is not None
    assert data.owner_test is not None
    assert_array_equal(np.bincount(data.owner), [3, 1, 8])
    assert_array_equal(np.bincount(data.owner_test), [1, 1, 1])
    for writer, name in enumerate(WRITERS):
        train = take_first_pixels(data.x_train[data.owner == writer])
        test = take_first_pixels(data.x_test[data.owner_test == writer])
        assert sorted(train + test) == sorted(list_expected_pixels(0, [name]))
        assert train == [pixel for pixel in list_expected_pixels(0, [name]) if pixel in train]
    again = load(Femnist(root=str(tmp_path)))
    assert_array_equal(again.x_test, data.x_test)


@pytest.mark.parametrize(("count", "kept"), [(2, 1), (3, 2), (5, 4), (10, 9), (11, 9), (40, 36)])
def test_split_is_leafs(count: int, kept: int) -> None:
    x = np.arange(count)
    user = leaf.split(x, x + 100, np.random.default_rng(count))
    assert len(user.x_train) == kept
    assert user.num_samples == count
    assert_array_equal(np.sort(np.concatenate([user.x_train, user.x_test])), x)
    assert_array_equal(user.y_train, user.x_train + 100)
    assert (np.diff(user.x_train) > 0).all()


def test_users_are_drawn_until_they_have_enough() -> None:
    sizes = np.random.default_rng(3).integers(1, 60, 500)
    for fraction in (0.05, 0.4, 1.0):
        for seed in range(5):
            drawn = leaf.draw_users(sizes.tolist(), fraction, 1, np.random.default_rng(seed))
            held = sizes[drawn].sum()
            assert held >= fraction * sizes.sum() - 0.5
            assert held < fraction * sizes.sum() + 60
            assert (np.diff(drawn) > 0).all()
    assert_array_equal(leaf.draw_users([5, 1, 9], 1.0, 2, np.random.default_rng(0)), [0, 2])
    with pytest.raises(UserError, match="none of the 3 drawn users has 10 samples"):
        leaf.draw_users([5, 1, 9], 1.0, 10, np.random.default_rng(0))


def test_a_fraction_of_the_files(root: Path) -> None:
    names = set()
    for seed in range(12):
        data = load(Femnist(root=str(root), fraction=0.1, sample_seed=seed))
        assert data.owner is not None
        assert set(data.owner) == {0}
        names.add(len(data.y_train))
    assert names == {4, 2, 9}
    few = load(Femnist(root=str(root), min_samples=5))
    assert_array_equal(few.owner, [0] * 4 + [1] * 9)


def spoilt(**change: Any) -> dict[str, Any]:
    one = make_leaf_content(0, ["f0"])
    one["user_data"]["f0"].update(change)
    return one


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "not a JSON file"),
        ("[]", "not a file of LEAF"),
        ({"users": ["f0"]}, "'user_data' is missing"),
        ({"users": ["f0"], "user_data": {}}, "'f0' is missing"),
        ({"users": 3, "user_data": {}}, "not a file of LEAF"),
        (spoilt(x=[[0.5] * 783] * 4), r"user 'f0': 'x' has shape \[4, 783\]"),
        (spoilt(x=[[0.5] * 784, [0.5]] * 2), "user 'f0': 'x': cannot be an array"),
        (spoilt(x=[["0.5"] * 784] * 4), "user 'f0': 'x': got the type str.*lists of numbers"),
        (
            spoilt(x=[[0.5] * 784, [0.5] * 783 + [1e39]] * 2),
            "user 'f0': 'x': 2 of 3136 pixels are not finite, first at sample 1, feature 783",
        ),
        (spoilt(x=[[0.5] * 783 + [math.nan]] * 4), "user 'f0': 'x': 4 of 3136 pixels are not fin"),
        (spoilt(y=[1, 2, 3, 2**70]), "user 'f0': .*too large"),
        (spoilt(y=[1, 2, 3]), "user 'f0' has 4 samples but 3 labels"),
        (spoilt(y=[1, 2, 3, 0.5]), "user 'f0': 'y' must be a list of whole numbers"),
        (spoilt(y=[1, 2, 3, 62]), r"1 of 1 test labels is outside the whole numbers 0\.\.61"),
        ({"users": ["f0"], "user_data": {"f0": {"x": []}}}, "user 'f0': 'y' is missing"),
    ],
)
def test_what_is_no_file_of_leaf(tmp_path: Path, value: Any, message: str) -> None:
    write(tmp_path / "femnist" / "all_data", "all_data.json", value)
    with pytest.raises(UserError, match=message):
        load(Femnist(root=str(tmp_path)))


def test_users_of_one_folder_alone(root: Path) -> None:
    write(root / "femnist" / "test", "all_data_1_keep_0.json", make_leaf_content(1, []))
    with pytest.raises(UserError, match=r"user 'f1' is in only one of .*preprocess.sh -t sample"):
        load(Femnist(root=str(root)))
    write(root / "femnist" / "train", "more.json", make_leaf_content(0, ["f0"]))
    with pytest.raises(UserError, match="user 'f0' is also in another file"):
        load(Femnist(root=str(root)))
