"""A selection of the user's own: what is said of a wrong one.

That a right one does what it does, tests/contract/test_own_classes.py looks at.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from contract.small import engine

from otafl.core.errors import UserError
from otafl.selection.base import Selection

pytestmark = pytest.mark.exact


class All(Selection):
    def select_devices(self, available: Any, wanted: Any, round: int, state: Any) -> Any:
        return available


class Taken(Selection):
    """Marks in the array that it was given whom it takes."""

    def select_devices(self, available: Any, wanted: Any, round: int, state: Any) -> Any:
        available[:] = False
        available[:, :wanted] = True
        return available


class Numbers(Selection):
    def select_devices(self, available: Any, wanted: Any, round: int, state: Any) -> Any:
        return np.arange(wanted)


class Mapped(Selection):
    def select_devices(self, available: Any, wanted: Any, round: int, state: Any) -> Any:
        return {}


def select(name: str, free: np.ndarray | None = None, **keys: Any) -> Any:
    section = {"name": f"selection.test_custom:{name}", **keys}
    one = engine({"devices.participants": 2, "devices.selection": section, "trials": 2})
    free = np.ones((2, 4), bool) if free is None else free
    return one.select_cohort(free, 0, one.draw_channel(0))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("All", "returned 4 devices of trial 0; expected at most 2"),
        ("Numbers", "returned [2] int64; expected a NumPy array [2, 4] of bool, True for part"),
        ("Mapped", "returned dict; expected a NumPy array [2, 4] of bool, True for part"),
        (
            "Taken",
            "returned device 1 of trial 1, which is not available; expected available devices",
        ),
    ],
)
def test_what_is_wrong_is_said(name: str, said: str) -> None:
    free = np.ones((2, 4), bool)
    free[1, 1] = name != "Taken"
    with pytest.raises(UserError, match=re.escape(said)) as error:
        select(name, free)
    start = f"devices.selection.name: select_devices of 'selection.test_custom:{name}' returned "
    assert str(error.value).startswith(start)
