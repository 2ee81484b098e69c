"""Classes split by Dirichlet proportions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
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


@pytest.mark.law
@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_dirichlet_proportions(alpha: float) -> None:
    """A device's share of a class is Beta(alpha, (K - 1) alpha): its mean, its variance and all of
    its distribution, over 4,000 independent shares. Level 1e-4 each."""
    devices, classes, size = 4, 40, 1000
    labels = np.repeat(np.arange(classes), size)
    partition, shares = Dirichlet(alpha=alpha), []
    for seed in range(100):
        first = assign_samples(partition, labels, devices, np.random.default_rng(seed))[0]
        shares.append(np.bincount(labels[first], minlength=classes) / size)
    share = np.concatenate(shares)
    law = stats.beta(alpha, (devices - 1) * alpha)
    mean, variance = 1 / devices, (1 - 1 / devices) / devices / (devices * alpha + 1)
    assert law.stats("mv") == pytest.approx((mean, variance))
    z = stats.norm.isf(0.5e-4)
    assert abs(share.mean() - mean) < z * np.sqrt(variance / len(share))
    squares = (share - mean) ** 2
    assert abs(squares.mean() - variance) < z * squares.std() / np.sqrt(len(share))
    # Device 0 gets rint(share * size) samples: bins that end at half samples are exact.
    inner = np.unique(np.floor(law.ppf(np.linspace(0.05, 0.95, 19)) * size) + 0.5) / size
    edges = np.concatenate([[-0.5], inner, [1.5]])
    seen, wanted = np.histogram(share, edges)[0], np.diff(law.cdf(edges)) * len(share)
    assert stats.chisquare(seen, wanted).pvalue > 1e-4


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
