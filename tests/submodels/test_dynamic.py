"""Levels that are drawn in every round."""

from __future__ import annotations

import numpy as np
import pytest
from support.assignments import assign, make_cohort, make_levels

pytestmark = pytest.mark.exact


def test_dynamic_levels_are_drawn_by_device_and_round() -> None:
    drawn = make_levels("dynamic", shares=(2, 1, 1))
    table = np.array([assign(drawn, make_cohort(), round=t) for t in range(8)])
    assert (table.std(0) > 0).all()
    assert (table.std(1) > 0).any()
    assert assign(drawn, make_cohort([6, 2]), round=3) == table[3, [6, 2]].tolist()
