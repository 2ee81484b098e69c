"""Laws of availability: when devices are present."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

from otafl.core import registry
from otafl.core.rng import Streams
from otafl.devices.availability import AvailabilitySetup
from otafl.validation.bench import Bench
from otafl.validation.checks import Check, check_share, state_law

DEVICES = 3000
"""Devices whose presence is recorded."""

DAY_S = 86400.0
ON_S, OFF_S = 20.0, 30.0
SHARE = ON_S / (ON_S + OFF_S)

DAYS: dict[str, dict[str, float]] = {
    "short sessions": {"mean": 0.6, "amplitude": 0.38, "mean_session_s": 3600.0},
    "long sessions": {"mean": 0.4, "amplitude": 0.2, "mean_session_s": 21600.0},
}
PEAK_HOUR = 14.0

Life = list[tuple[float, bool]]


@functools.lru_cache(maxsize=4)
def _record_lives(bench: Bench, name: str, until_s: float, **keys: float) -> list[Life]:
    """Record the changes of presence of each device, which begin with its state at 0."""
    devices = bench.scale_size(DEVICES)
    section = registry.load_settings_class("availability", name)(**keys)
    setup = AvailabilitySetup(devices, Streams([11], [0]))
    availability: Any = registry.make_component("availability", section, setup)
    lives = []
    for device in range(devices):
        changes = availability.list_changes(0, device)
        life = list(itertools.takewhile(lambda change: change[0] <= until_s, changes))
        lives.append(life if life and life[0][0] == 0.0 else [(0.0, True), *life])
    return lives


def _is_present(life: Life, at_s: float) -> bool:
    return life[bisect.bisect_right(life, (at_s, True)) - 1][1]


def _check_presence(lives: list[Life], at_s: float, share: float, case: str) -> Check:
    return check_share(share, sum(_is_present(life, at_s) for life in lives), len(lives), case)


def _record_markov(bench: Bench) -> list[Life]:
    return _record_lives(bench, "markov", 400.0, mean_on_s=ON_S, mean_off_s=OFF_S)


@state_law("availability markov: memory", "p +- ((1 - p) or p) exp(-(1/on + 1/off) t)")
def _markov_memory(bench: Bench) -> Iterator[Check]:
    """Count the devices present t after starts 100 s apart, of those present or absent there.

    After 100 s nearly nothing is left of a state, so the starts are independent.
    """
    lives, starts_s = _record_markov(bench), range(0, 400, 100)
    for at_s in (3.0, 10.0):
        left = math.exp(-(1.0 / ON_S + 1.0 / OFF_S) * at_s)
        for present, case in ((True, "present"), (False, "absent")):
            later = [
                _is_present(life, start_s + at_s)
                for life in lives
                for start_s in starts_s
                if _is_present(life, start_s) == present
            ]
            law = SHARE + (present - SHARE) * left
            yield check_share(law, sum(later), len(later), f"{case}, {at_s:g} s later")


def _record_day(bench: Bench, case: str) -> list[Life]:
    return _record_lives(bench, "diurnal", DAY_S, **DAYS[case], peak_hour=PEAK_HOUR)


@state_law("availability diurnal: share over the day", "m + a cos(w (t - peak))", "{}", DAYS)
def _day_share(bench: Bench, case: str) -> Iterator[Check]:
    """Count the present devices every four hours."""
    keys = DAYS[case]
    for hour in range(0, 25, 4):
        angle = 2.0 * math.pi * (hour - PEAK_HOUR) / 24.0
        law = keys["mean"] + keys["amplitude"] * math.cos(angle)
        yield _check_presence(_record_day(bench, case), hour * 3600.0, law, f"after {hour} h")
