"""Laws of the partitions. Seeds are fixed; each test states its false-alarm level."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import stats

from otafl.data.config import (
    DirichletConfig,
    IidConfig,
    LabelSkewConfig,
    PartitionConfig,
    ShardsConfig,
)
from otafl.data.partition import partition

ALL: list[PartitionConfig] = [
    IidConfig(),
    ShardsConfig(),
    ShardsConfig(shards_per_device=5),
    DirichletConfig(alpha=0.1),
    DirichletConfig(alpha=10.0, min_samples=5),
    LabelSkewConfig(classes_per_device=1),
    LabelSkewConfig(classes_per_device=3),
]


@pytest.mark.parametrize("config", ALL, ids=str)
@pytest.mark.parametrize("devices", [1, 2, 10, 17])
def test_parts_are_disjoint_and_not_empty(config: PartitionConfig, devices: int) -> None:
    labels = np.random.default_rng(5).integers(0, 7, 800)
    for seed in range(5):
        parts = partition(config, labels, devices, np.random.default_rng(seed))
        again = partition(config, labels, devices, np.random.default_rng(seed))
        other = partition(config, labels, devices, np.random.default_rng(seed + 100))
        dealt = np.concatenate(parts)
        assert len(parts) == devices
        assert min(map(len, parts)) >= 1
        assert len(np.unique(dealt)) == len(dealt)
        assert 0 <= dealt.min() <= dealt.max() < 800
        assert dealt.dtype == np.int64
        assert_array_equal(dealt, np.concatenate(again))
        assert not np.array_equal(dealt, np.concatenate(other))
        everything = not isinstance(config, LabelSkewConfig)
        if everything or devices * config.classes_per_device >= 7:
            assert len(dealt) == 800


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_dirichlet_proportions(alpha: float) -> None:
    """A device's share of a class is Beta(alpha, (K - 1) alpha): its mean, its variance and all of
    its distribution, over 4,000 independent shares. Level 1e-4 each."""
    devices, classes, size = 4, 40, 5000
    labels = np.repeat(np.arange(classes), size)
    config, shares = DirichletConfig(alpha=alpha), []
    for seed in range(100):
        first = partition(config, labels, devices, np.random.default_rng(seed))[0]
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


def test_iid_is_uniform() -> None:
    """Where sample 0 goes, over 2,000 partitions to 10 devices: chi-square at level 1e-4."""
    labels = np.zeros(50, np.int64)
    owner = []
    for seed in range(2000):
        parts = partition(IidConfig(), labels, 10, np.random.default_rng(seed))
        owner.append(next(k for k, part in enumerate(parts) if 0 in part))
    assert stats.chisquare(np.bincount(owner, minlength=10)).pvalue > 1e-4


def test_label_skew_pairs_all_classes() -> None:
    """Device 0's two classes over 3,000 partitions: each of the 45 pairs equally often (its place
    in the order is random, and no class is named before another). Chi-square at level 1e-4."""
    labels = np.arange(40) % 10
    pairs = np.zeros((10, 10))
    for seed in range(3000):
        parts = partition(LabelSkewConfig(), labels, 10, np.random.default_rng(seed))
        a, b = np.unique(labels[parts[0]])
        pairs[a, b] += 1
    assert stats.chisquare(pairs[np.triu_indices(10, 1)]).pvalue > 1e-4
