"""A battery's charge, at instants worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from otafl.clock.batteries import Battery

pytestmark = pytest.mark.exact


def test_battery_empties_at_the_instant_at_which_its_draws_have_used_it() -> None:
    """10 J: 2 W for 3 s, 1 W for 2 s, then 4 W: 2 J are left at 5 s, none at 5.5."""
    battery = Battery(20.0, 10.0, 0.0)
    assert battery.plan(0.0, [(0.0, 2.0), (3.0, 1.0), (5.0, 4.0)]) == 5.5
    assert [battery.update_charge(t) for t in (1.0, 3.0, 4.0, 5.25, 5.5)] == [
        8.0,
        4.0,
        3.0,
        1.0,
        0.0,
    ]


def test_harvest_fills_up_to_capacity_and_no_further() -> None:
    """1 W comes: 2 J more after 2 s, when it is full; then 3 W are drawn, net 2 W."""
    battery = Battery(4.0, 2.0, 1.0)
    assert battery.plan(0.0, [(0.0, 0.0), (10.0, 3.0)]) == 12.0
    assert battery.update_charge(1.0) == 3.0
    assert battery.update_charge(10.0) == 4.0
    assert battery.harvested_j == 2.0
    assert battery.update_charge(11.0) == 2.0
    assert battery.harvested_j == 3.0
    assert battery.compute_seconds_to(3.5) == 1.5
    assert Battery(4.0, 1.0, 0.0).compute_seconds_to(2.0) == np.inf
