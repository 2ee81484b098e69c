"""Laws of comings and goings. Each test's false-alarm level over all that it compares is 1e-4;
seeds are fixed.

Mutations that make a test here fail: a start away from the stationary law; on and off times
exchanged, or of a fixed length; a return rate without p', without p / s, or over p; thinning
without its ratio; a bound too low for an hour; the peak moved the wrong way; no spread.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from otafl.core import registry
from otafl.core.rng import Streams
from otafl.devices.availability import AvailabilitySetup

LEVEL = 1e-4
DEVICES = 3000
DAY_S = 86400.0


def lives(name: str, until_s: float, **fields: Any) -> list[list[tuple[float, bool]]]:
    """Of 3000 devices, each beginning with what it is at 0."""
    config = registry.settings("availability", name)(**fields)
    setup = AvailabilitySetup(DEVICES, Streams([11], [0]))
    availability = registry.component("availability", name)(config, setup)
    out = []
    for device in range(DEVICES):
        changes = availability.changes(0, device)
        life = list(itertools.takewhile(lambda change: change[0] <= until_s, changes))
        out.append(life if life and life[0][0] == 0.0 else [(0.0, True), *life])
    return out


def there(life: list[list[tuple[float, bool]]], at_s: float) -> int:
    """How many devices."""
    return sum(next(on for when, on in reversed(one) if when <= at_s) for one in life)


def stays(life: list[list[tuple[float, bool]]], on: bool, before_s: float) -> list[float]:
    """Whole stays that began after 0 and before an instant long before the end."""
    return [
        b[0] - a[0]
        for one in life
        for a, b in itertools.pairwise(one)
        if a[1] == on and 0 < a[0] < before_s
    ]


def check_share(count: int, share: float, level: float) -> None:
    assert stats.binomtest(count, DEVICES, share).pvalue > level


def test_markov_share_is_stationary_from_the_start() -> None:
    life = lives("markov", 300.0, mean_on_s=100.0, mean_off_s=300.0)
    for at_s in (0.0, 20.0, 50.0, 300.0):
        check_share(there(life, at_s), 0.25, LEVEL / 4)


def test_markov_stays_are_exponential() -> None:
    life = lives("markov", 1000.0, mean_on_s=10.0, mean_off_s=30.0)
    for on, mean in ((True, 10.0), (False, 30.0)):
        sample = stays(life, on, 100.0)  # the longest is over by 1000, up to e^-30
        assert stats.kstest(sample, stats.expon(scale=mean).cdf).pvalue > LEVEL / 2


def test_markov_is_without_memory_between_stays() -> None:
    """P(there at t | there at 0) = p + (1 - p) e^(-(a + b) t), a and b the rates."""
    life = lives("markov", 60.0, mean_on_s=20.0, mean_off_s=30.0)
    early = [one for one in life if one[0][1]]
    rate = 1 / 20 + 1 / 30
    expected = 0.4 + 0.6 * math.exp(-rate * 8.0)
    assert stats.binomtest(there(early, 8.0), len(early), expected).pvalue > LEVEL


@pytest.mark.parametrize(
    ("mean", "amplitude", "session_s"),
    [(0.5, 0.3, 3600.0), (0.6, 0.38, 1800.0), (0.4, 0.2, 21600.0)],
    ids=["default", "crowded", "long"],
)
def test_diurnal_share_follows_the_day(mean: float, amplitude: float, session_s: float) -> None:
    life = lives(
        "diurnal",
        1.5 * DAY_S,
        mean=mean,
        amplitude=amplitude,
        mean_session_s=session_s,
        peak_hour=20.0,
        start_hour=6.0,
    )
    hours = range(0, 36, 2)
    for hour in hours:
        share = mean + amplitude * math.cos(2 * math.pi * (hour + 6 - 20) / 24)
        check_share(there(life, hour * 3600.0), share, LEVEL / len(hours))


def test_diurnal_sessions_are_exponential() -> None:
    life = lives("diurnal", 40 * 900.0 + DAY_S / 4, mean_session_s=900.0)
    sample = stays(life, True, DAY_S / 4)
    assert stats.kstest(sample, stats.expon(scale=900.0).cdf).pvalue > LEVEL


def test_peaks_that_are_spread_flatten_the_day() -> None:
    """The mean of cos over an even spread of so many hours is less by sinc(spread / 24)."""
    life = lives("diurnal", DAY_S, mean=0.5, amplitude=0.4, spread_hours=12.0, peak_hour=0.0)
    flat = np.sinc(12 / 24)  # sin(pi x) / (pi x)
    for hour in (0, 5, 12, 20):
        share = 0.5 + 0.4 * flat * math.cos(2 * math.pi * hour / 24)
        check_share(there(life, hour * 3600.0), share, LEVEL / 4)
    one = there(lives("diurnal", 0.0, mean=0.5, amplitude=0.4, peak_hour=0.0), 0.0)
    check_share(one, 0.9, LEVEL)
