"""Laws of comings and goings after exponential times. Each test's false-alarm level over all that
it compares is 1e-4; seeds are fixed.
"""

from __future__ import annotations

import math

import pytest
from scipy import stats
from support.lives import LEVEL, check_share, get_state, measure_intervals, record_traces

pytestmark = pytest.mark.law


def test_markov_share_is_stationary_from_the_start() -> None:
    life = record_traces("markov", 300.0, mean_on_s=100.0, mean_off_s=300.0)
    for at_s in (0.0, 20.0, 50.0, 300.0):
        check_share(get_state(life, at_s), 0.25, LEVEL / 4)


def test_markov_stays_are_exponential() -> None:
    life = record_traces("markov", 1000.0, mean_on_s=10.0, mean_off_s=30.0)
    for on, mean in ((True, 10.0), (False, 30.0)):
        sample = measure_intervals(life, on, 100.0)  # the longest is over by 1000, up to e^-30
        assert stats.kstest(sample, stats.expon(scale=mean).cdf).pvalue > LEVEL / 2


def test_markov_is_without_memory_between_stays() -> None:
    """P(there at t | there at 0) = p + (1 - p) e^(-(a + b) t), a and b the rates."""
    life = record_traces("markov", 60.0, mean_on_s=20.0, mean_off_s=30.0)
    early = [one for one in life if one[0][1]]
    rate = 1 / 20 + 1 / 30
    expected = 0.4 + 0.6 * math.exp(-rate * 8.0)
    assert stats.binomtest(get_state(early, 8.0), len(early), expected).pvalue > LEVEL
