"""Partitions by log-normal sizes, Dirichlet mixes and users.

Mutations that must fail: `cut_lognormal` without the least number, or with the shares not made to
sum to one; label_skew ignoring size_sigma; in `_counts`, more taken than there is, nothing drawn
again, a mix that is not made to sum to one; devices that choose in turn; `natural` with the users
of another device, all users where there are fewer devices, groups of fewer than min_users, samples
out of order.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from otafl.core.errors import UserError
from otafl.data.config import LabelSkewConfig, PartitionConfig
from otafl.data.config_partition import DirichletMixConfig, LognormalConfig, NaturalConfig
from otafl.data.mixes import cut_lognormal
from otafl.data.partition import Indices, partition

LABELS = np.random.default_rng(1).permutation(np.arange(2000) % 10)
OWNER = np.array([3, 3, 8, 5, 5, 5, 8, 0, 3, 5])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def dealt(config: PartitionConfig, devices: int, seed: int = 0) -> list[Indices]:
    parts = partition(config, LABELS, devices, rng(seed))
    together = np.concatenate(parts)
    assert len(parts) == devices
    assert len(np.unique(together)) == len(together)
    return parts


class Given:
    """A generator whose log-normal numbers are given."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = np.array(numbers)

    def lognormal(self, mean: float, sigma: float, size: int) -> np.ndarray:
        assert (mean, sigma, size) == (0.0, 2.0, len(self.numbers))
        return self.numbers


def test_lognormal_cut_by_hand() -> None:
    """Shares 1, 2, 5 of the 16 that are left of 22 once each of three parts has two."""
    parts = cut_lognormal(np.arange(22), 3, 2.0, 2, Given(0.5, 1.0, 2.5))  # type: ignore[arg-type]
    assert [len(part) for part in parts] == [4, 6, 12]
    assert_array_equal(np.concatenate(parts), np.arange(22))


def test_lognormal_sizes() -> None:
    """The logarithms of many large sizes have the deviation asked for: 300 devices, five standard
    errors of a deviation, 1 / sqrt(600) each."""
    labels = np.zeros(3_000_000, np.int64)
    parts = partition(LognormalConfig(sigma=0.8), labels, 300, rng())
    sizes = np.array([len(part) for part in parts])
    assert sizes.sum() == len(labels)
    assert abs(np.log(sizes).std() / 0.8 - 1) < 5 / 600**0.5
    assert not np.array_equal(np.concatenate(parts), np.arange(len(labels)))


def test_lognormal_least_and_even() -> None:
    assert min(map(len, dealt(LognormalConfig(sigma=5.0, min_samples=30), 40))) >= 30
    assert {len(part) for part in dealt(LognormalConfig(sigma=0.0), 40)} == {50}


def test_label_skew_with_unequal_sizes() -> None:
    parts = dealt(LabelSkewConfig(classes_per_device=2, size_sigma=1.5), 20)
    assert all(len(np.unique(LABELS[part])) == 2 for part in parts)
    assert sum(map(len, parts)) == 2000
    assert np.std([len(part) for part in parts]) > 30
    even = dealt(LabelSkewConfig(classes_per_device=2), 20)
    assert {len(part) for part in even} == {100}


@pytest.mark.parametrize("alpha", [0.01, 0.5, 1000.0])
def test_dirichlet_mix_has_equal_sizes(alpha: float) -> None:
    for seed in range(3):
        parts = dealt(DirichletMixConfig(alpha=alpha), 40, seed)
        assert {len(part) for part in parts} == {50}
    parts = dealt(DirichletMixConfig(alpha=alpha, samples_per_device=7), 40)
    assert {len(part) for part in parts} == {7}


def test_dirichlet_mix_follows_its_concentration() -> None:
    """Where no class runs out the mixes are Dirichlet: their largest part of ten is on average
    0.943, 0.665, 0.293 and 0.116 at 0.01, 0.1, 1 and 100 (by simulation); 200 devices of 300
    samples each, five standard errors."""
    labels = np.arange(1_000_000) % 10
    for alpha, mean in ((0.01, 0.943), (0.1, 0.665), (1.0, 0.293), (100.0, 0.116)):
        config = DirichletMixConfig(alpha=alpha, samples_per_device=300)
        parts = partition(config, labels, 200, rng())
        mixes = np.array([np.bincount(labels[part], minlength=10) for part in parts]) / 300
        largest = mixes.max(1)
        # A finite sample's largest share is a little above that of its mix.
        assert -5 * largest.std() / 200**0.5 < largest.mean() - mean < 0.03
        assert abs(mixes.mean(0) - 0.1).max() < 5 * mixes.std(0).max() / 200**0.5


def test_dirichlet_mix_takes_from_what_is_left() -> None:
    """All samples are dealt out though hardly any device draws more than one class."""
    parts = dealt(DirichletMixConfig(alpha=0.001), 10)
    assert sum(map(len, parts)) == 2000
    pure = [np.bincount(LABELS[part], minlength=10).max() for part in parts]
    assert max(pure) == 200
    assert all(np.any(np.diff(part) < 0) for part in parts)


def test_dirichlet_mix_devices_choose_in_random_order() -> None:
    """Who comes last takes what is left, and that is not always the same device: the largest part
    of the last four devices' mixes is as that of all, within five standard errors."""
    largest = np.array(
        [
            [
                np.bincount(LABELS[part]).max()
                for part in dealt(DirichletMixConfig(alpha=0.02), 20, s)
            ]
            for s in range(100)
        ]
    )
    error = largest.std() / largest[:, -4:].size ** 0.5
    assert abs(largest[:, -4:].mean() - largest.mean()) < 5 * error


def test_natural_by_hand() -> None:
    """Four users and four devices: each holds a user's samples, in order."""
    parts = partition(NaturalConfig(), OWNER, 4, rng(), OWNER)
    assert [part.tolist() for part in parts] == [[7], [0, 1, 8], [3, 4, 5, 9], [2, 6]]


def test_natural_draws_users_where_there_are_more() -> None:
    owner = np.repeat(np.arange(50) * 7, np.arange(1, 51))
    drawn = []
    for seed in range(5):
        parts = partition(NaturalConfig(), owner, 20, rng(seed), owner)
        users = [np.unique(owner[part]) for part in parts]
        assert all(len(own) == 1 for own in users)
        assert all(len(part) == owner[part][0] // 7 + 1 for part in parts)
        drawn.append(np.concatenate(users).tolist())
        assert len(set(drawn[-1])) == 20
    assert len({tuple(one) for one in drawn}) == 5


def test_natural_groups() -> None:
    """All users are in a group of neighbours, 10 of them at least, and groups differ in size."""
    users = 400
    owner = np.random.default_rng(2).permutation(np.repeat(np.arange(users), 3))
    config = NaturalConfig(regroup=0.5, min_users=10)
    for seed in range(5):
        parts = partition(config, owner, 10, rng(seed), owner)
        groups = [np.unique(owner[part]) for part in parts]
        assert_array_equal(np.concatenate(groups), np.arange(users))
        sizes = np.array([len(group) for group in groups])
        assert sizes.min() >= 10
        assert sizes.std() > 10
        assert_array_equal([len(part) for part in parts], 3 * sizes)
        assert all((np.diff(part) > 0).all() for part in parts)
    even = partition(NaturalConfig(regroup=1e6, min_users=10), owner, 10, rng(), owner)
    assert all(110 <= len(part) <= 130 for part in even)


@pytest.mark.parametrize(
    ("config", "devices", "message"),
    [
        (LognormalConfig(min_samples=300), 7, "min_samples: 7 devices x 300 are more than the 200"),
        (
            DirichletMixConfig(samples_per_device=300),
            7,
            "samples_per_device: 7 devices x 300 are more",
        ),
        (NaturalConfig(), 2, "'natural' needs a data set whose samples have users"),
    ],
)
def test_refuses(config: PartitionConfig, devices: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        partition(config, LABELS, devices, rng())


def test_natural_refuses_more_devices_than_users() -> None:
    with pytest.raises(UserError, match="5 devices need 5 users and the data set has 4"):
        partition(NaturalConfig(), OWNER, 5, rng(), OWNER)
    with pytest.raises(UserError, match="2 devices need 6 users and the data set has 4"):
        partition(NaturalConfig(regroup=1.0, min_users=3), OWNER, 2, rng(), OWNER)
