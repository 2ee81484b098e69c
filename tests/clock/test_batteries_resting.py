"""Batteries of devices that only sleep, all at once, against a battery each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.made_devices import make_battery_hardware
from support.rounding import assert_agree

from otafl.clock.batteries import Resting
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
    resting, has = Resting(own), np.flatnonzero(np.isfinite(own.battery_j)).tolist()
    each = [resting.remove_device(device) for device in has]
    empty_s = [one.plan(0.0, [(0.0, own.sleep_w[k])]) for k, one in zip(has, each, strict=True)]
    assert_agree(resting.empty_s[has], np.array(empty_s))
    for now_s in at:
        charge = resting.compute_charge_j(now_s)
        assert_agree(charge[has], np.array([one.update_charge(now_s) for one in each]))
        assert np.isinf(np.delete(charge, has)).all()
    harvested = resting.compute_harvested_j(at[-1])
    assert_agree(harvested[has], np.array([one.harvested_j for one in each]))
