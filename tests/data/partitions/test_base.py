"""What partitions have in common, and those whose result follows from a few numbers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from support.decks import assign_samples

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.data.dataset import Indices
from otafl.data.partitions import Partition
from otafl.data.partitions.by_class import Dirichlet, DirichletMix, LabelSkew, Shards
from otafl.data.partitions.label_free import Iid, Lognormal

pytestmark = pytest.mark.exact

OWN = [name for name in registry.list_names("partition") if name != "flower"]
"""Flower's need its package: they are in `tests/interop`."""

LABELS = np.arange(1000) % 10
SHUFFLED = np.random.default_rng(1).permutation(np.arange(2000) % 10)


def parts_of(
    partition: Partition, labels: Indices, devices: int, seed: int = 0
) -> list[np.ndarray]:
    return list(assign_samples(partition, labels, devices, np.random.default_rng(seed)))


@pytest.mark.parametrize("name", OWN)
def test_parts_are_disjoint_and_not_empty(name: str) -> None:
    partition: Partition = registry.load_settings_class("partition", name)()
    labels = np.random.default_rng(5).integers(0, 7, 800)
    owner = np.arange(800) % 160
    for devices in (1, 2, 17):
        parts, again = (
            assign_samples(partition, labels, devices, np.random.default_rng(0), owner)
            for _ in range(2)
        )
        together = np.concatenate(parts)
        assert len(parts) == devices
        assert min(map(len, parts)) >= 1
        assert len(np.unique(together)) == len(together)
        assert 0 <= together.min() <= together.max() < 800
        assert together.dtype == np.int64
        assert_array_equal(together, np.concatenate(again))
        if isinstance(partition, Iid | Shards | Dirichlet | Lognormal):
            assert len(together) == 800


def test_lognormal_cut_by_hand() -> None:
    """Shares of the 16 that are left of 19 once each of three parts has one."""
    generator = np.random.default_rng(0)
    expected = np.random.default_rng(0)
    expected.permutation(19)
    share = expected.lognormal(0.0, 2.0, 3)
    ends = np.rint(np.cumsum(share) / share.sum() * 16).astype(int)
    parts = assign_samples(Lognormal(sigma=2.0), LABELS[:19], 3, generator)
    assert [len(part) for part in parts] == (np.diff(ends, prepend=0) + 1).tolist()
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(19))


def test_iid_deals_out_everything_evenly() -> None:
    parts = parts_of(Iid(), LABELS[:103], 10)
    assert sorted(map(len, parts)) == [10] * 7 + [11] * 3
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(103))
    assert not np.array_equal(np.concatenate(parts), np.arange(103))


def test_shards_of_a_class_each() -> None:
    """10 classes of 100 and 5 devices with 2 shards: a shard is exactly a class."""
    parts = parts_of(Shards(), LABELS, 5)
    held = [np.unique(LABELS[part], return_counts=True) for part in parts]
    assert all(count.tolist() == [100, 100] for _, count in held)
    assert sorted(np.concatenate([classes for classes, _ in held])) == list(range(10))


def test_dirichlet_extremes() -> None:
    """A huge alpha splits every class evenly; a tiny one gives each class to one device."""
    even = parts_of(Dirichlet(alpha=1e9), LABELS, 4)
    assert all(np.bincount(LABELS[part]).tolist() == [25] * 10 for part in even)
    skewed = parts_of(Dirichlet(alpha=1e-3), LABELS, 2, 1)
    shares = np.array([np.bincount(LABELS[part], minlength=10) for part in skewed]).max(0)
    assert np.median(shares) == 100
    for seed in range(10):  # drawn again until each device has enough
        enough = parts_of(Dirichlet(alpha=0.3, min_samples=60), LABELS, 5, seed)
        assert min(map(len, enough)) >= 60


def test_dirichlet_mix_takes_from_what_is_left() -> None:
    """All samples are dealt out though hardly any device draws more than one class."""
    parts = parts_of(DirichletMix(alpha=0.001), SHUFFLED, 10)
    assert {len(part) for part in parts} == {200}
    assert len(np.unique(np.concatenate(parts))) == 2000
    assert max(np.bincount(SHUFFLED[part], minlength=10).max() for part in parts) == 200
    assert all(np.any(np.diff(part) < 0) for part in parts)
    few = parts_of(DirichletMix(alpha=0.5, samples_per_device=7), SHUFFLED, 40)
    assert {len(part) for part in few} == {7}


@pytest.mark.parametrize(("devices", "each"), [(7, 3), (12, 1), (4, 10)])
def test_label_skew_is_balanced(devices: int, each: int) -> None:
    for seed in range(5):
        parts = parts_of(LabelSkew(classes_per_device=each), LABELS, devices, seed)
        held = [np.unique(LABELS[part]) for part in parts]
        assert [len(classes) for classes in held] == [each] * devices
        holders = np.bincount(np.concatenate(held), minlength=10)
        assert holders.max() - holders.min() <= 1
        for part in parts:
            for c, share in zip(*np.unique(LABELS[part], return_counts=True), strict=True):
                assert abs(share - 100 / holders[c]) < 1
        assert len(np.concatenate(parts)) == 100 * np.count_nonzero(holders)


def test_label_skew_breaks_ties_at_random() -> None:
    """By their numbers, the classes of a device would be 0 and 1, or 2 and 3, and so on."""
    parts = [part for seed in range(5) for part in parts_of(LabelSkew(), LABELS, 5, seed)]
    assert len({tuple(np.unique(LABELS[part])) for part in parts}) > 5


@pytest.mark.parametrize(
    ("partition", "labels", "devices", "message"),
    [
        (Iid(), LABELS[:5], 6, "devices.count: 6 devices .* 5"),
        (Shards(shards_per_device=3), LABELS[:8], 3, "shards_per_device: 3 devices x 3"),
        (Dirichlet(alpha=1e-4), LABELS, 50, "data.partition.alpha: got 0.0001; .*50 devices"),
        (Dirichlet(min_samples=200), LABELS, 6, "data.partition.min_samples"),
        (DirichletMix(samples_per_device=300), LABELS, 7, "samples_per_device: 7 devices x 300"),
        (LabelSkew(classes_per_device=11), LABELS, 5, "classes_per_device: got 11; .* at most 10"),
        (LabelSkew(classes_per_device=10), LABELS[:20], 5, "5 devices x 10 are more than the 20"),
        (
            LabelSkew(classes_per_device=10),
            np.concatenate([LABELS, [10]]),
            5,
            "devices.count: [2-5] of 5 .* 1 samples of class 10",
        ),
    ],
)
def test_refuses(partition: Partition, labels: Indices, devices: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parts_of(partition, labels, devices)
