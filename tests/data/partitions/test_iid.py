"""Samples shuffled and dealt out evenly."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from support.decks import assign_samples

from otafl.data.partitions.iid import Iid

LABELS = np.arange(1000) % 10


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.exact
def test_iid_deals_out_everything_evenly() -> None:
    parts = assign_samples(Iid(), LABELS[:103], 10, rng())
    assert sorted(map(len, parts)) == [10] * 7 + [11] * 3
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(103))
    assert not np.array_equal(np.concatenate(parts), np.arange(103))
