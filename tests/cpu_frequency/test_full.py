"""The highest clock frequency."""

from __future__ import annotations

import pytest
from support.paces import make_policy, make_task

pytestmark = pytest.mark.exact


def test_full_is_the_highest() -> None:
    pace = make_policy("full", 1, 3).choose_speed(make_task(1, 3, 4e9, 1.0))
    assert pace.frequency_hz.tolist() == [1e9] * 3
    assert pace.power is None
