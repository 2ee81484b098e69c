"""The highest clock frequency."""

from __future__ import annotations

import pytest
from support.paces import chosen, task

pytestmark = pytest.mark.exact


def test_full_is_the_highest() -> None:
    pace = chosen("full", 1, 3).pace(task(1, 3, 4e9, 1.0))
    assert pace.frequency_hz.tolist() == [1e9] * 3
    assert pace.power is None
