"""Laws of availability: when devices are present."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

from otafl.core import registry
from otafl.core.rng import Streams
from otafl.devices.availability import AvailabilitySetup
from otafl.laws.bench import Bench
from otafl.laws.checks import Check, check_distribution, check_share, state_law

DEVICES = 3000
"""Devices whose presence is recorded."""

DAY_S = 86400.0
ON_S, OFF_S = 20.0, 30.0
SHARE = ON_S / (ON_S + OFF_S)
GILBERT = "Gilbert 1960; two-state Markov process"

DAYS: dict[str, dict[str, float]] = {
    "short sessions": {"mean": 0.6, "amplitude": 0.38, "mean_session_s": 3600.0},
    "long sessions": {"mean": 0.4, "amplitude": 0.2, "mean_session_s": 21600.0},
}
PEAK_HOUR, START_HOUR = 20.0, 6.0

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


def _measure_stays(lives: list[Life], present: bool, before_s: float) -> np.ndarray:
    """Return the lengths of stays, or absences, that began after 0 and before an instant."""
    return np.array(
        [
            end[0] - start[0]
            for life in lives
            for start, end in itertools.pairwise(life)
            if start[1] == present and 0 < start[0] < before_s
        ]
    )


def _record_markov(bench: Bench) -> list[Life]:
    return _record_lives(bench, "markov", 400.0, mean_on_s=ON_S, mean_off_s=OFF_S)


@state_law("availability markov: share from the start", GILBERT)
def _markov_share(bench: Bench) -> Iterator[Check]:
    for at_s in (0.0, 2.0, 5.0, 300.0):
        yield _check_presence(_record_markov(bench), at_s, SHARE, f"after {at_s:g} s")


@state_law("availability markov: exponential stays", GILBERT)
def _markov_stays(bench: Bench) -> Iterator[Check]:
    """Compare stays and absences that begin in the first 100 s; nearly all end before 400 s."""
    for present, mean_s in ((True, ON_S), (False, OFF_S)):
        stays = _measure_stays(_record_markov(bench), present, 100.0)
        case = "present" if present else "absent"
        yield check_distribution(stays, stats.expon(scale=mean_s).cdf, case)


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
    hours = {"peak_hour": PEAK_HOUR, "start_hour": START_HOUR}
    return _record_lives(bench, "diurnal", DAY_S, **DAYS[case], **hours)


@state_law("availability diurnal: share over the day", "m + a cos(w (t - peak))", "{}", DAYS)
def _day_share(bench: Bench, case: str) -> Iterator[Check]:
    """Count the present devices every four hours."""
    keys = DAYS[case]
    for hour in range(0, 25, 4):
        angle = 2.0 * math.pi * (hour + START_HOUR - PEAK_HOUR) / 24.0
        law = keys["mean"] + keys["amplitude"] * math.cos(angle)
        yield _check_presence(_record_day(bench, case), hour * 3600.0, law, f"after {hour} h")


@state_law("availability diurnal: exponential sessions", "constant rate of leaving")
def _day_sessions(bench: Bench) -> Iterator[Check]:
    """Compare the sessions of an hour on average that begin in the first 18 hours."""
    stays = _measure_stays(_record_day(bench, "short sessions"), True, 0.75 * DAY_S)
    scale = DAYS["short sessions"]["mean_session_s"]
    yield check_distribution(stays, stats.expon(scale=scale).cdf)


@state_law("availability diurnal: spread peaks", "amplitude times sinc(spread / 24)")
def _day_spread(bench: Bench) -> Iterator[Check]:
    """Count the present devices over 20 hours, with peaks spread over 12 hours."""
    keys = {"mean": 0.5, "amplitude": 0.4, "spread_hours": 12.0, "mean_session_s": 3600.0}
    hours = {"peak_hour": 0.0, "start_hour": 0.0}
    lives = _record_lives(bench, "diurnal", 20 * 3600.0, **keys, **hours)
    for hour in (0, 5, 12, 20):
        law = 0.5 + 0.4 * np.sinc(12.0 / 24.0) * math.cos(2.0 * math.pi * hour / 24.0)
        yield _check_presence(lives, hour * 3600.0, float(law), f"after {hour} h")


MARKOV = "otafl.devices.availability.markov:MarkovAvailability.list_changes"
DIURNAL = "otafl.devices.availability.diurnal:DiurnalAvailability"
