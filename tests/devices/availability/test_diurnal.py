"""Laws of devices that follow the time of day. Each test's false-alarm level over all that it
compares is 1e-4; seeds are fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats
from support.lives import LEVEL, check_share, get_state, measure_intervals, record_traces

from otafl.devices.availability.diurnal import DiurnalAvailability

DAY_S = 86400.0


@pytest.mark.exact
def test_what_a_day_cannot_be() -> None:
    with pytest.raises(ValidationError, match=r"below 1; with mean: 0.6, use less than 0.4"):
        DiurnalAvailability.Settings(mean=0.6, amplitude=0.4)
    most = 0.3 / math.sqrt(1 + (2 * math.pi * 21600 / 86400) ** 2)
    DiurnalAvailability.Settings(mean=0.3, amplitude=most * 0.999, mean_session_s=21600)
    with pytest.raises(ValidationError, match=f"at most {most:.4g}"):
        DiurnalAvailability.Settings(mean=0.3, amplitude=most * 1.001, mean_session_s=21600)


@pytest.mark.law
@pytest.mark.parametrize(
    ("mean", "amplitude", "session_s"),
    [(0.5, 0.3, 3600.0), (0.6, 0.38, 1800.0), (0.4, 0.2, 21600.0)],
    ids=["default", "crowded", "long"],
)
def test_diurnal_share_follows_the_day(mean: float, amplitude: float, session_s: float) -> None:
    life = record_traces(
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
        check_share(get_state(life, hour * 3600.0), share, LEVEL / len(hours))


@pytest.mark.law
def test_diurnal_sessions_are_exponential() -> None:
    life = record_traces("diurnal", 40 * 900.0 + DAY_S / 4, mean_session_s=900.0)
    sample = measure_intervals(life, True, DAY_S / 4)
    assert stats.kstest(sample, stats.expon(scale=900.0).cdf).pvalue > LEVEL


@pytest.mark.law
def test_peaks_that_are_spread_flatten_the_day() -> None:
    """The mean of cos over an even spread of so many hours is less by sinc(spread / 24)."""
    life = record_traces(
        "diurnal", DAY_S, mean=0.5, amplitude=0.4, spread_hours=12.0, peak_hour=0.0
    )
    flat = np.sinc(12 / 24)  # sin(pi x) / (pi x)
    for hour in (0, 5, 12, 20):
        share = 0.5 + 0.4 * flat * math.cos(2 * math.pi * hour / 24)
        check_share(get_state(life, hour * 3600.0), share, LEVEL / 4)
    one = get_state(record_traces("diurnal", 0.0, mean=0.5, amplitude=0.4, peak_hour=0.0), 0.0)
    check_share(one, 0.9, LEVEL)
