"""Batteries of devices that only sleep, all at once, against a battery each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.made_devices import make_battery_hardware
from support.rounding import assert_agree

from otafl.clock.resting import Resting
from otafl.clock.trial_clock import TrialClock
from otafl.devices.battery import Battery
from otafl.devices.hardware import Hardware
from otafl.devices.protocols import Rules

pytestmark = pytest.mark.exact

DEVICES = 30


def sleepers(seed: int) -> Hardware:
    """Devices of which some run empty in their sleep, some never do, and some are on mains."""
    rng = np.random.default_rng(seed)
    charge = rng.uniform(0.0, 6.0, DEVICES)
    charge[3] = 0.0
    own = make_battery_hardware(
        DEVICES,
        receive_w=rng.random(DEVICES),
        idle_w=0.3 * rng.random(DEVICES),
        sleep_w=0.1 * rng.random(DEVICES),
        battery_j=6.0,
        charge_j=charge,
        restart_j=2.0,
        harvest_w=0.1 * rng.random(DEVICES),
    )
    mains = np.arange(DEVICES) % 5 == 4
    return replace(
        own,
        battery_j=np.where(mains, np.inf, own.battery_j),
        charge_j=np.where(mains, np.inf, own.charge_j),
    )


def test_charges_are_those_of_batteries() -> None:
    own, at = sleepers(0), np.cumsum(np.random.default_rng(1).exponential(9.0, 20)).tolist()
    resting = Resting(own)
    numbers = zip(own.battery_j.tolist(), own.charge_j, own.harvest_w.tolist(), strict=True)
    each = [Battery(capacity, float(charge), harvest) for capacity, charge, harvest in numbers]
    empty_s = [
        battery.plan(0.0, [(0.0, watts)])
        for battery, watts in zip(each, own.sleep_w.tolist(), strict=True)
    ]
    has = np.isfinite(own.battery_j)
    assert_agree(resting.empty_s[has], np.array(empty_s)[has])
    for now_s in at:
        charge = resting.update_charge(now_s)
        expected = np.array([each[k].update_charge(now_s) for k in np.flatnonzero(has)])
        assert_agree(charge[has], expected)
        assert np.isinf(charge[~has]).all()
    for device in np.flatnonzero(has).tolist():
        taken = resting.remove_device(device)
        assert taken.harvested_j == pytest.approx(each[device].harvested_j, rel=1e-9)
        expected = each[device].update_charge(at[-1] + 3.0)
        assert taken.update_charge(at[-1] + 3.0) == pytest.approx(expected, rel=1e-9)


def life(seed: int) -> Any:
    at = np.cumsum(np.random.default_rng(seed).exponential(60.0, 30)).tolist()
    return iter([(t, bool(place % 2)) for place, t in enumerate(at)])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("leave", [False, True])
def test_a_trial_is_one_of_a_battery_each(seed: int, leave: bool) -> None:
    """Three of thirty devices work at a time: charges, joules and who is there."""
    rules = [
        Rules(),
        Rules(deadline_s=2.0),
        Rules(1, max_ready=2, late="next", broadcast_first=False),
    ]
    own = sleepers(seed)
    lives = [[life(100 * seed + k) for k in range(DEVICES)] if leave else [] for _ in range(2)]
    lazy, each = (TrialClock(own, rules[seed % 3], one, log=True) for one in lives)
    assert {*lazy.power.batteries} <= {3}  # which may be empty from the start
    for device in {*range(DEVICES)} - {*each.power.batteries}:
        each.power._plan(device, [(0.0, float(own.sleep_w[device]))])
    assert len(each.power.batteries) == np.isfinite(own.battery_j).sum()
    rng = np.random.default_rng(seed)
    for round in range(60):
        clocks = (lazy, each)
        assert {clock.wait_for_devices() for clock in clocks} == {True}
        free, other = (clock.get_available().nonzero()[0] for clock in clocks)
        assert free.tolist() == other.tolist()
        who = sorted(rng.choice(free, min(3, len(free)), replace=False).tolist())
        down, seconds, watts = (rng.exponential(1.0, (3, len(who)))).tolist()
        airtime_s, joules = rng.random(), rng.random(DEVICES).tolist()
        for clock in clocks:
            clock.start(round, who, down, seconds, watts)
        assert_agree(vars(lazy.admit()), vars(each.admit()))
        for clock in clocks:
            clock.transmit(airtime_s, joules)
        assert_agree(lazy.power.compute_charge_j(), each.power.compute_charge_j())
        assert_agree(lazy.compute_spent_j(), each.compute_spent_j())
        harvested = (clock.power.compute_harvested_j() for clock in clocks)
        assert_agree(*(h[np.isfinite(own.battery_j)] for h in harvested))
    assert_agree(lazy.history(), each.history())
    assert any(one.activity == "empty" for one in lazy.history())
