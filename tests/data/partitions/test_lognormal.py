"""Parts of log-normal sizes."""

from __future__ import annotations

import numpy as np
import pytest
from support.decks import assign_samples

from otafl.core.errors import UserError
from otafl.data.dataset import Indices
from otafl.data.partitions import Partition
from otafl.data.partitions.lognormal import Lognormal

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
def test_lognormal_least_and_even() -> None:
    assert min(map(len, parts_of(Lognormal(sigma=5.0, min_samples=30), 40))) >= 30
    assert {len(part) for part in parts_of(Lognormal(sigma=0.0), 40)} == {50}


@pytest.mark.exact
def test_refuses() -> None:
    with pytest.raises(UserError, match="min_samples: 7 devices x 300 are more than the 200"):
        assign_samples(Lognormal(min_samples=300), LABELS, 7, rng())
