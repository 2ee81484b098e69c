"""Intervals by hand, and that they are left as often as they say."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from otafl.validation import checks


def test_intervals_by_hand() -> None:
    check = checks.check_exact(2.0, 2.1, 0.1)
    assert (check.low, check.high) == (1.8, 2.2)
    assert check.strain == pytest.approx(0.5)
    assert check.is_passed
    assert not checks.check_exact(2.0, math.nan).is_passed
    assert checks.check_exact(2.0, math.nan).strain == math.inf
    assert not checks.check_at_most(1.0, 1.1).is_passed
    assert checks.check_at_most(1.0, 0.1).strain == 0
    assert not checks.check_at_least(1.0, 0.9).is_passed
    assert checks.check_normal(0.0, 4.96, 1.0).is_passed
    assert not checks.check_normal(0.0, 4.98, 1.0).is_passed
    ratios = checks.check_ratios(np.array([1.0, 0.5, 1.2]), np.ones(3))
    assert (ratios.measured, ratios.is_passed) == (0.5, False)


def test_intervals_hold_as_often_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a level of 5 %, 2,000 samples of 50 numbers each: between 3 % and 7 % are outside, six
    standard deviations, for every kind of interval."""
    monkeypatch.setattr(checks, "LEVEL", 0.05)
    rng = np.random.default_rng(0)
    z = rng.standard_normal((2000, 50))
    u = rng.uniform(size=(2000, 500))
    tried: dict[str, Callable[[int], checks.Check]] = {
        "mean": lambda i: checks.check_mean(0.0, z[i]),
        "mean_square": lambda i: checks.check_mean_square(3.0, z[i] ** 2, 50),
        "law_of": lambda i: checks.check_distribution(u[i], stats.uniform.cdf),
        "share": lambda i: checks.check_share(0.5, int((u[i] < 0.5).sum()), 500),
    }
    for name, one in tried.items():
        outside = sum(not one(i).is_passed for i in range(2000)) / 2000
        assert 0.03 < outside < 0.07, name
