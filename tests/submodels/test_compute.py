"""Levels by speed, against a hand-worked table."""

from __future__ import annotations

import pytest
from support.assignments import assign, make_cohort, make_levels

pytestmark = pytest.mark.exact


def test_the_fastest_have_the_largest_models() -> None:
    speeds = [5, 1, 8, 2, 7, 3, 6, 4]
    assert assign(make_levels("compute", speeds), make_cohort()) == [1, 2, 0, 2, 0, 2, 0, 1]
