"""Equally many samples for each device, of a class mix of its own."""

from __future__ import annotations

import numpy as np
import pytest
from support.decks import assign_samples

from otafl.core.errors import UserError
from otafl.data.dataset import Indices
from otafl.data.partitions import Partition
from otafl.data.partitions.dirichlet_mix import DirichletMix

LABELS = np.random.default_rng(1).permutation(np.arange(2000) % 10)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def parts_of(partition: Partition, devices: int, seed: int = 0) -> list[Indices]:
    parts = assign_samples(partition, LABELS, devices, rng(seed))
    together = np.concatenate(parts)
    assert len(parts) == devices
    assert len(np.unique(together)) == len(together)
    return parts


@pytest.mark.exact
@pytest.mark.parametrize("alpha", [0.01, 0.5, 1000.0])
def test_dirichlet_mix_has_equal_sizes(alpha: float) -> None:
    for seed in range(3):
        parts = parts_of(DirichletMix(alpha=alpha), 40, seed)
        assert {len(part) for part in parts} == {50}
    parts = parts_of(DirichletMix(alpha=alpha, samples_per_device=7), 40)
    assert {len(part) for part in parts} == {7}


@pytest.mark.law
def test_dirichlet_mix_follows_its_concentration() -> None:
    """Where no class runs out the mixes are Dirichlet: their largest part of ten is on average
    0.943, 0.665, 0.293 and 0.116 at 0.01, 0.1, 1 and 100 (by simulation); 200 devices of 300
    samples each, five standard errors."""
    labels = np.arange(1_000_000) % 10
    for alpha, mean in ((0.01, 0.943), (0.1, 0.665), (1.0, 0.293), (100.0, 0.116)):
        partition = DirichletMix(alpha=alpha, samples_per_device=300)
        parts = assign_samples(partition, labels, 200, rng())
        mixes = np.array([np.bincount(labels[part], minlength=10) for part in parts]) / 300
        largest = mixes.max(1)
        # A finite sample's largest share is a little above that of its mix.
        assert -5 * largest.std() / 200**0.5 < largest.mean() - mean < 0.03
        assert abs(mixes.mean(0) - 0.1).max() < 5 * mixes.std(0).max() / 200**0.5


@pytest.mark.exact
def test_dirichlet_mix_takes_from_what_is_left() -> None:
    """All samples are dealt out though hardly any device draws more than one class."""
    parts = parts_of(DirichletMix(alpha=0.001), 10)
    assert sum(map(len, parts)) == 2000
    pure = [np.bincount(LABELS[part], minlength=10).max() for part in parts]
    assert max(pure) == 200
    assert all(np.any(np.diff(part) < 0) for part in parts)


@pytest.mark.law
def test_dirichlet_mix_devices_choose_in_random_order() -> None:
    """Who comes last takes what is left, and that is not always the same device: the largest part
    of the last four devices' mixes is as that of all, within five standard errors."""
    largest = np.array(
        [
            [np.bincount(LABELS[part]).max() for part in parts_of(DirichletMix(alpha=0.02), 20, s)]
            for s in range(100)
        ]
    )
    error = largest.std() / largest[:, -4:].size ** 0.5
    assert abs(largest[:, -4:].mean() - largest.mean()) < 5 * error


@pytest.mark.exact
def test_refuses() -> None:
    with pytest.raises(UserError, match="samples_per_device: 7 devices x 300 are more"):
        assign_samples(DirichletMix(samples_per_device=300), LABELS, 7, rng())
