"""Partitions worked by hand, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from otafl.core.errors import UserError
from otafl.data.config import (
    DirichletConfig,
    IidConfig,
    LabelSkewConfig,
    PartitionConfig,
    ShardsConfig,
)
from otafl.data.partition import pack, partition

LABELS = np.arange(1000) % 10


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_pack_by_hand() -> None:
    parts = [[np.array([4, 2, 9]), np.array([7])], [np.array([1, 0]), np.array([3, 5])]]
    index, count = pack(parts)
    assert_array_equal(index, [[[4, 2, 9], [7, 7, 7]], [[1, 0, 1], [3, 5, 3]]])
    assert_array_equal(count, [[3, 1], [2, 2]])
    assert index.dtype == count.dtype == np.int64


def test_iid_deals_out_everything_evenly() -> None:
    parts = partition(IidConfig(), LABELS[:103], 10, rng())
    assert sorted(map(len, parts)) == [10] * 7 + [11] * 3
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(103))
    assert not np.array_equal(np.concatenate(parts), np.arange(103))


def test_shards_of_a_class_each() -> None:
    """10 classes of 100 and 5 devices with 2 shards: a shard is exactly a class."""
    parts = partition(ShardsConfig(), LABELS, 5, rng())
    held = [np.unique(LABELS[part], return_counts=True) for part in parts]
    assert all(count.tolist() == [100, 100] for _, count in held)
    assert sorted(np.concatenate([classes for classes, _ in held])) == list(range(10))


def test_a_shard_is_cut_out_of_the_sorted_labels() -> None:
    """One shard a device, 20 devices: half a class each."""
    parts = partition(ShardsConfig(shards_per_device=1), LABELS, 20, rng())
    assert all(len(part) == 50 and len(set(LABELS[part])) == 1 for part in parts)


@pytest.mark.parametrize(("devices", "each"), [(10, 2), (7, 3), (5, 2), (3, 4), (12, 1), (4, 10)])
def test_label_skew_is_balanced(devices: int, each: int) -> None:
    for seed in range(20):
        parts = partition(LabelSkewConfig(classes_per_device=each), LABELS, devices, rng(seed))
        held = [np.unique(LABELS[part]) for part in parts]
        assert [len(classes) for classes in held] == [each] * devices
        holders = np.bincount(np.concatenate(held), minlength=10)
        assert holders.max() - holders.min() <= 1
        for part in parts:
            for c, share in zip(*np.unique(LABELS[part], return_counts=True), strict=True):
                assert abs(share - 100 / holders[c]) < 1
        assert len(np.concatenate(parts)) == 100 * np.count_nonzero(holders)


def test_dirichlet_extremes() -> None:
    """A huge alpha splits every class evenly; a tiny one gives each class to one device."""
    even = partition(DirichletConfig(alpha=1e9), LABELS, 4, rng())
    assert all(np.bincount(LABELS[part]).tolist() == [25] * 10 for part in even)
    skewed = partition(DirichletConfig(alpha=1e-3), LABELS, 2, rng(1))
    shares = np.array([np.bincount(LABELS[part], minlength=10) for part in skewed]).max(0)
    assert np.median(shares) == 100


def test_dirichlet_is_redrawn_until_everybody_has_enough() -> None:
    config = DirichletConfig(alpha=0.3, min_samples=60)
    for seed in range(10):
        assert min(map(len, partition(config, LABELS, 5, rng(seed)))) >= 60


@pytest.mark.parametrize(
    ("config", "labels", "devices", "message"),
    [
        (IidConfig(), LABELS[:5], 6, "devices.count: 6 devices .* 5"),
        (ShardsConfig(shards_per_device=3), LABELS[:8], 3, "shards_per_device: 3 devices x 3"),
        (DirichletConfig(alpha=1e-4), LABELS, 50, "data.partition.alpha: 0.0001 .*50 devices"),
        (DirichletConfig(min_samples=200), LABELS, 6, "data.partition.min_samples"),
        (LabelSkewConfig(classes_per_device=11), LABELS, 5, "classes_per_device: 11 .* 10 classes"),
        (
            LabelSkewConfig(classes_per_device=10),
            LABELS[:20],
            5,
            "devices.count: 5 of 5 .* class 0",
        ),
    ],
)
def test_refuses(config: PartitionConfig, labels: np.ndarray, devices: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        partition(config, labels, devices, rng())
