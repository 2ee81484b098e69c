"""Devices that are there all the time."""

from __future__ import annotations

import pytest
from support.lives import make_availability

pytestmark = pytest.mark.exact


def test_always_there_has_no_changes() -> None:
    assert make_availability("always", [3], [0], 2).list_changes(0, 1) is None
