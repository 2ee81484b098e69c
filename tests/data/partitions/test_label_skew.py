"""A fixed number of classes for each device."""

from __future__ import annotations

import numpy as np
import pytest
from support.decks import assign_samples

from otafl.core.errors import UserError
from otafl.data.dataset import Indices
from otafl.data.partitions import Partition
from otafl.data.partitions.label_skew import LabelSkew

LABELS = np.arange(1000) % 10
SHUFFLED = np.random.default_rng(1).permutation(np.arange(2000) % 10)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.exact
@pytest.mark.parametrize(("devices", "each"), [(10, 2), (7, 3), (5, 2), (3, 4), (12, 1), (4, 10)])
def test_label_skew_is_balanced(devices: int, each: int) -> None:
    for seed in range(20):
        parts = assign_samples(LabelSkew(classes_per_device=each), LABELS, devices, rng(seed))
        held = [np.unique(LABELS[part]) for part in parts]
        assert [len(classes) for classes in held] == [each] * devices
        holders = np.bincount(np.concatenate(held), minlength=10)
        assert holders.max() - holders.min() <= 1
        for part in parts:
            for c, share in zip(*np.unique(LABELS[part], return_counts=True), strict=True):
                assert abs(share - 100 / holders[c]) < 1
        assert len(np.concatenate(parts)) == 100 * np.count_nonzero(holders)


@pytest.mark.exact
def test_label_skew_with_unequal_sizes() -> None:
    def parts_of(partition: LabelSkew) -> list[Indices]:
        parts = assign_samples(partition, SHUFFLED, 20, rng())
        together = np.concatenate(parts)
        assert len(parts) == 20
        assert len(np.unique(together)) == len(together)
        return parts

    parts = parts_of(LabelSkew(classes_per_device=2, size_sigma=1.5))
    assert all(len(np.unique(SHUFFLED[part])) == 2 for part in parts)
    assert sum(map(len, parts)) == 2000
    assert np.std([len(part) for part in parts]) > 30
    even = parts_of(LabelSkew(classes_per_device=2))
    assert {len(part) for part in even} == {100}


@pytest.mark.exact
@pytest.mark.parametrize(
    ("partition", "labels", "devices", "message"),
    [
        (
            LabelSkew(classes_per_device=11),
            LABELS,
            5,
            "classes_per_device: got 11; must be at most 10",
        ),
        (
            LabelSkew(classes_per_device=10),
            LABELS[:20],
            5,
            "classes_per_device: 5 devices x 10 are more than the 20 samples",
        ),
        (
            LabelSkew(classes_per_device=10),
            np.concatenate([LABELS, [10]]),
            5,
            "devices.count: [2-5] of 5 .* 1 samples of class 10",
        ),
    ],
)
def test_refuses(partition: Partition, labels: np.ndarray, devices: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        assign_samples(partition, labels, devices, rng())
