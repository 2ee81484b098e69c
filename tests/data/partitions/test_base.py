"""What partitions have in common, and what they share."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from support.decks import assign_samples

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.data.partitions import Partition
from otafl.data.partitions.base import split_lognormal
from otafl.data.partitions.dirichlet import Dirichlet
from otafl.data.partitions.iid import Iid
from otafl.data.partitions.label_skew import LabelSkew
from otafl.data.partitions.lognormal import Lognormal
from otafl.data.partitions.shards import Shards

OWN = [name for name in registry.list_names("partition") if name != "flower"]
"""Flower's need its package: they are in `tests/interop`."""

ALL: list[Partition] = [
    *(registry.load_settings_class("partition", name)() for name in OWN),
    Shards(shards_per_device=5),
    Dirichlet(alpha=0.1),
    Dirichlet(alpha=10.0, min_samples=5),
    LabelSkew(classes_per_device=1),
    LabelSkew(classes_per_device=3),
]


@pytest.mark.exact
@pytest.mark.parametrize("partition", ALL, ids=str)
@pytest.mark.parametrize("devices", [1, 2, 10, 17])
def test_parts_are_disjoint_and_not_empty(partition: Partition, devices: int) -> None:
    labels = np.random.default_rng(5).integers(0, 7, 800)
    owner = np.arange(800) % 160
    for seed in range(5):
        parts = assign_samples(partition, labels, devices, np.random.default_rng(seed), owner)
        again = assign_samples(partition, labels, devices, np.random.default_rng(seed), owner)
        other = assign_samples(partition, labels, devices, np.random.default_rng(seed + 100), owner)
        together = np.concatenate(parts)
        assert len(parts) == devices
        assert min(map(len, parts)) >= 1
        assert len(np.unique(together)) == len(together)
        assert 0 <= together.min() <= together.max() < 800
        assert together.dtype == np.int64
        assert_array_equal(together, np.concatenate(again))
        assert not np.array_equal(together, np.concatenate(other))
        everything = isinstance(partition, Iid | Shards | Dirichlet | Lognormal)
        if isinstance(partition, LabelSkew):
            everything = devices * partition.classes_per_device >= 7
        if everything:
            assert len(together) == 800


class Given:
    """A generator whose log-normal numbers are given."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = np.array(numbers)

    def lognormal(self, mean: float, sigma: float, size: int) -> np.ndarray:
        assert (mean, sigma, size) == (0.0, 2.0, len(self.numbers))
        return self.numbers


@pytest.mark.exact
def test_lognormal_cut_by_hand() -> None:
    """Shares 1, 2, 5 of the 16 that are left of 22 once each of three parts has two."""
    parts = split_lognormal(np.arange(22), 3, 2.0, 2, Given(0.5, 1.0, 2.5))  # type: ignore[arg-type]
    assert [len(part) for part in parts] == [4, 6, 12]
    assert_array_equal(np.concatenate(parts), np.arange(22))


@pytest.mark.exact
def test_a_device_needs_a_sample() -> None:
    with pytest.raises(UserError, match=r"devices.count: 6 devices .* 5"):
        assign_samples(Iid(), np.arange(5), 6, np.random.default_rng(0))
