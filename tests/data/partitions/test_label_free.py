"""Devices that are users, or groups of users."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from support.decks import assign_samples

from otafl.core.errors import UserError
from otafl.data.partitions.label_free import Natural

pytestmark = pytest.mark.exact

OWNER = np.array([3, 3, 8, 5, 5, 5, 8, 0, 3, 5])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_natural_by_hand() -> None:
    """Four users and four devices: each holds a user's samples, in order."""
    parts = assign_samples(Natural(), OWNER, 4, rng(), OWNER)
    assert [part.tolist() for part in parts] == [[7], [0, 1, 8], [3, 4, 5, 9], [2, 6]]


def test_natural_groups() -> None:
    """All users are in a group of neighbours, 10 of them at least, and groups differ in size."""
    users = 400
    owner = np.random.default_rng(2).permutation(np.repeat(np.arange(users), 3))
    partition = Natural(regroup=0.5, min_users=10)
    for seed in range(5):
        parts = assign_samples(partition, owner, 10, rng(seed), owner)
        groups = [np.unique(owner[part]) for part in parts]
        assert_array_equal(np.concatenate(groups), np.arange(users))
        sizes = np.array([len(group) for group in groups])
        assert sizes.min() >= 10
        assert sizes.std() > 10
        assert_array_equal([len(part) for part in parts], 3 * sizes)
        assert all((np.diff(part) > 0).all() for part in parts)
    even = assign_samples(Natural(regroup=1e6, min_users=10), owner, 10, rng(), owner)
    assert all(110 <= len(part) <= 130 for part in even)


def test_natural_refuses_more_devices_than_users() -> None:
    with pytest.raises(UserError, match="5 devices need 5 users and the data set has 4"):
        assign_samples(Natural(), OWNER, 5, rng(), OWNER)
    with pytest.raises(UserError, match="2 devices need 6 users and the data set has 4"):
        assign_samples(Natural(regroup=1.0, min_users=3), OWNER, 2, rng(), OWNER)


def test_natural_needs_users() -> None:
    message = (
        "data.partition: 'natural' needs a data set whose samples have users, such as femnist or "
        "sent140 or shakespeare or ridge or parkinsons or uci_har or hf; use one, or another "
        "partition"
    )
    with pytest.raises(UserError, match=message):
        assign_samples(Natural(), OWNER, 2, rng())


def test_natural_draws_users_where_there_are_more() -> None:
    owner = np.repeat(np.arange(50) * 7, np.arange(1, 51))
    for seed in range(5):
        parts = assign_samples(Natural(), owner, 20, rng(seed), owner)
        users = [np.unique(owner[part]) for part in parts]
        assert all(len(own) == 1 for own in users)
        assert all(len(part) == owner[part][0] // 7 + 1 for part in parts)
        assert len(set(np.concatenate(users).tolist())) == 20
