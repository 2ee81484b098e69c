"""Levels for the whole run, against hand-worked tables.

Mutations that make a test here fail: the smallest model for the first block; shares not normalised.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.assignments import K, cohort, levels, of

pytestmark = pytest.mark.exact


def test_fixed_blocks_go_by_shares() -> None:
    assert of(levels("fixed"), cohort()) == [0, 0, 0, 1, 1, 2, 2, 2]
    assert of(levels("fixed", shares=(1, 0, 3)), cohort()) == [0, 0, 2, 2, 2, 2, 2, 2]
    assert of(levels("fixed", shares=(1, 1, 2)), cohort([6, 1])) == [2, 0]


def test_random_assignment_keeps_its_counts_and_differs_between_trials() -> None:
    drawn = levels("fixed", trials=2, assignment="random")
    every = list(range(K))
    got = np.reshape(of(drawn, cohort(every, every)), (2, K))
    assert sorted(got[0]) == sorted(got[1]) == [0, 0, 0, 1, 1, 2, 2, 2]
    assert (got[0] != got[1]).any()
