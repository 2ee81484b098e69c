"""Classes split by Dirichlet proportions."""

from __future__ import annotations

import numpy as np
import pytest
from support.decks import assign_samples

from otafl.core.errors import UserError
from otafl.data.partitions import Partition
from otafl.data.partitions.dirichlet import Dirichlet

LABELS = np.arange(1000) % 10


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.exact
def test_dirichlet_extremes() -> None:
    """A huge alpha splits every class evenly; a tiny one gives each class to one device."""
    even = assign_samples(Dirichlet(alpha=1e9), LABELS, 4, rng())
    assert all(np.bincount(LABELS[part]).tolist() == [25] * 10 for part in even)
    skewed = assign_samples(Dirichlet(alpha=1e-3), LABELS, 2, rng(1))
    shares = np.array([np.bincount(LABELS[part], minlength=10) for part in skewed]).max(0)
    assert np.median(shares) == 100


@pytest.mark.exact
def test_dirichlet_is_redrawn_until_everybody_has_enough() -> None:
    partition = Dirichlet(alpha=0.3, min_samples=60)
    for seed in range(10):
        assert min(map(len, assign_samples(partition, LABELS, 5, rng(seed)))) >= 60


@pytest.mark.exact
@pytest.mark.parametrize(
    ("partition", "labels", "devices", "message"),
    [
        (Dirichlet(alpha=1e-4), LABELS, 50, "data.partition.alpha: got 0.0001; .*50 devices"),
        (Dirichlet(min_samples=200), LABELS, 6, "data.partition.min_samples"),
    ],
)
def test_refuses(partition: Partition, labels: np.ndarray, devices: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        assign_samples(partition, labels, devices, rng())
