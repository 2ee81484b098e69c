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


@pytest.mark.exact
def test_dirichlet_mix_takes_from_what_is_left() -> None:
    """All samples are dealt out though hardly any device draws more than one class."""
    parts = parts_of(DirichletMix(alpha=0.001), 10)
    assert sum(map(len, parts)) == 2000
    pure = [np.bincount(LABELS[part], minlength=10).max() for part in parts]
    assert max(pure) == 200
    assert all(np.any(np.diff(part) < 0) for part in parts)


@pytest.mark.exact
def test_refuses() -> None:
    with pytest.raises(UserError, match="samples_per_device: 7 devices x 300 are more"):
        assign_samples(DirichletMix(samples_per_device=300), LABELS, 7, rng())
