"""Levels for the whole run, against hand-worked tables."""

from __future__ import annotations

import numpy as np
import pytest
from support.assignments import K, assign, make_cohort, make_levels

pytestmark = pytest.mark.exact


def test_fixed_blocks_go_by_shares() -> None:
    assert assign(make_levels("fixed"), make_cohort()) == [0, 0, 0, 1, 1, 2, 2, 2]
    assert assign(make_levels("fixed", shares=(1, 0, 3)), make_cohort()) == [0, 0, 2, 2, 2, 2, 2, 2]
    assert assign(make_levels("fixed", shares=(1, 1, 2)), make_cohort([6, 1])) == [2, 0]


def test_random_assignment_keeps_its_counts_and_differs_between_trials() -> None:
    drawn = make_levels("fixed", trials=2, assignment="random")
    every = list(range(K))
    got = np.reshape(assign(drawn, make_cohort(every, every)), (2, K))
    assert sorted(got[0]) == sorted(got[1]) == [0, 0, 0, 1, 1, 2, 2, 2]
    assert (got[0] != got[1]).any()
