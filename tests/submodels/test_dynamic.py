"""Levels that are drawn in every round: chi-squared over 3,200 draws, false alarm 1e-3."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from support.assignments import assign, make_cohort, make_levels

pytestmark = pytest.mark.law


def test_dynamic_levels_are_drawn_by_device_and_round() -> None:
    drawn = make_levels("dynamic", shares=(2, 1, 1))
    table = np.array([assign(drawn, make_cohort(), round=t) for t in range(400)])
    counts = np.bincount(table.ravel(), minlength=3)
    assert stats.chisquare(counts, table.size * np.array([0.5, 0.25, 0.25])).pvalue > 1e-3
    assert (table.std(0) > 0).all()
    assert (table.std(1) > 0).any()
    assert assign(drawn, make_cohort([6, 2]), round=3) == table[3, [6, 2]].tolist()
