"""Shards of the sorted labels."""

from __future__ import annotations

import numpy as np
import pytest
from support.decks import assign_samples

from otafl.core.errors import UserError
from otafl.data.partitions.shards import Shards

pytestmark = pytest.mark.exact

LABELS = np.arange(1000) % 10


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_shards_of_a_class_each() -> None:
    """10 classes of 100 and 5 devices with 2 shards: a shard is exactly a class."""
    parts = assign_samples(Shards(), LABELS, 5, rng())
    held = [np.unique(LABELS[part], return_counts=True) for part in parts]
    assert all(count.tolist() == [100, 100] for _, count in held)
    assert sorted(np.concatenate([classes for classes, _ in held])) == list(range(10))


def test_a_shard_is_cut_out_of_the_sorted_labels() -> None:
    """One shard a device, 20 devices: half a class each."""
    parts = assign_samples(Shards(shards_per_device=1), LABELS, 20, rng())
    assert all(len(part) == 50 and len(set(LABELS[part])) == 1 for part in parts)


def test_refuses() -> None:
    with pytest.raises(UserError, match="shards_per_device: 3 devices x 3"):
        assign_samples(Shards(shards_per_device=3), LABELS[:8], 3, rng())
