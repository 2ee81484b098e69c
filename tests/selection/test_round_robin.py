"""Devices in turn, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.selections import ALL, FLAT, K, S, make_selection, to_sets

pytestmark = pytest.mark.exact


def test_round_robin_in_turn() -> None:
    made = make_selection("round_robin")
    rounds = [to_sets(made.select_devices(ALL, 3, t, FLAT))[1] for t in range(5)]
    assert rounds == [[0, 1, 2], [0, 3, 4], [1, 2, 3], [0, 1, 4], [2, 3, 4]]


def test_round_robin_lets_a_busy_device_go_first_once_it_is_free() -> None:
    """Device 0 is busy in the first two rounds; trial 1 is as ever."""
    made = make_selection("round_robin")
    busy = ALL.copy()
    busy[0, 0] = False
    rounds = [
        made.select_devices(free, 2, t, FLAT) for t, free in enumerate([busy, busy, ALL, ALL])
    ]
    assert [to_sets(one)[0] for one in rounds] == [[1, 2], [3, 4], [0, 1], [2, 3]]
    assert [to_sets(one)[1] for one in rounds] == [[0, 1], [2, 3], [0, 4], [1, 2]]
    made = make_selection("round_robin")
    alone = np.tile(np.arange(K) == 3, (S, 1))
    assert to_sets(made.select_devices(alone, 2, 0, FLAT)) == [[3], [3]]
    assert to_sets(made.select_devices(ALL, 2, 1, FLAT)) == [[0, 1], [0, 1]]
