"""Levels by speed, against a hand-worked table.

Mutations that make a test here fail: the smallest model for the fastest.
"""

from __future__ import annotations

import pytest
from support.assignments import cohort, levels, of

pytestmark = pytest.mark.exact


def test_the_fastest_have_the_largest_models() -> None:
    speeds = [5, 1, 8, 2, 7, 3, 6, 4]
    assert of(levels("compute", speeds), cohort()) == [1, 2, 0, 2, 0, 2, 0, 1]
