"""Passes of a satellite as presence of devices."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pydantic import ValidationError
from support.lives import make_lives
from support.refusals import assert_refused

import otafl
from otafl.core.orbits import compute_pass_s
from otafl.devices.orbit import OrbitAvailability

pytestmark = pytest.mark.exact


def test_passes_by_hand() -> None:
    lives = make_lives("orbit", [0], [0], 2, first_pass_s=100.0, period_s=3000.0, lowest_deg=30.0)
    length = compute_pass_s(600e3, 90, 90, 30)
    expected = [(0.0, False)]
    for number in range(3):
        begin = 100.0 + 3000.0 * number
        expected += [(begin, True), (begin + length, False)]
    for life in lives[0]:
        assert list(itertools.islice(life, 7)) == [(pytest.approx(t), on) for t, on in expected]
    present = make_lives("orbit", [0], [0], 1)[0][0]
    assert next(present) == (pytest.approx(compute_pass_s(600e3, 90, 90, 10)), False)


def test_settings_that_cannot_be() -> None:
    cases: list[tuple[Any, str]] = [
        ({"lowest_deg": 50, "highest_deg": 40}, "lowest_deg: got 50; must be below highest_deg"),
        ({"period_s": 300}, "period_s: got 300; must be longer than a pass of 510"),
        ({"altitude_m": 20e3}, "altitude_m"),
    ]
    assert_refused(OrbitAvailability, cases, ValidationError)


def test_an_uplink_at_600_km_by_hand() -> None:
    """Devices wait for the pass. Each round then takes the broadcast, the work, the symbols at one
    a second and hertz, and twice 761 km at the speed of light. The joules of each device are 0.2 W
    over the symbols."""
    scenario = {
        "name": "orbit",
        "channel": {"name": "ntn", "tx_power_dbm": 23.0103, "bandwidth_hz": 1.8e5},
        "power": {"name": "full"},
        "training": {"rounds": 3, "eval_every": 1, "local_steps": 1},
        "devices": {"count": 4, "availability": {"name": "orbit", "first_pass_s": 100.0}},
    }
    near = scenario | {"channel": {"name": "rayleigh", "bandwidth_hz": 1.8e5, "snr_db": 10}}
    orbit, ground = otafl.run(scenario), otafl.run(near)
    symbols = float(orbit.uplink_symbols.values.ravel()[-1]) / 3
    airtime = orbit.airtime_s.values.ravel()
    assert airtime[-1] == pytest.approx(3 * symbols / 1.8e5)
    delay = 2 * 760_869 / 299_792_458  # sqrt((R sin 50)^2 + h^2 + 2 h R) - R sin 50
    far, close = orbit.sim_time_s.values.ravel(), ground.sim_time_s.values.ravel()
    assert far[1] - close[1] == pytest.approx(delay, rel=1e-3)
    assert far[1] > 100.0
    joules = orbit.tx_energy_j.values.reshape(-1, 4)[-1]
    assert joules == pytest.approx(0.2 * airtime[-1] + 0 * joules, rel=1e-4)
