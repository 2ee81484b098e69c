"""Batteries of devices that only sleep, all at once, against a battery each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.made_devices import make_battery_hardware
from support.rounding import assert_agree

from otafl.clock.batteries import Battery, Resting
from otafl.devices.hardware import Hardware

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
