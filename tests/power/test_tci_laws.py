"""Budgets and silence of `tci` over fading. Seeds are fixed; every test's false-alarm level over
all that it compares is 1e-4.

Mutations that make a test here fail: the budget on |p|^2 without E1(g_th), the estimate's extra
variance left out of it, m left out of it, the mean over devices for the max.
"""

from __future__ import annotations

import math

import pytest
from scipy import special, stats
from support.fading_runs import BUDGET, DEVICES, LEVEL, STATES, M, interval, run
from support.power_links import policy_of

pytestmark = pytest.mark.law


@pytest.mark.parametrize("variance", [0.0, 0.25])
@pytest.mark.parametrize(("gain", "threshold"), [(1.0, 0.1), (0.2, 0.1), (3.0, 1.0)])
def test_tci_meets_the_long_term_budget(gain: float, threshold: float, variance: float) -> None:
    """E|p|^2 m = P for the device of the largest m, m / max m of it for the others."""
    policy = policy_of("tci", relative=False)
    _, link, got = run(policy, gain, variance, threshold)
    assert policy.keeps == "average"
    used = (got.p.abs().square() * link.power)[:, 0] / BUDGET
    for k, share in enumerate((M / M.max()).tolist()):
        assert abs(used[:, k].mean() - share) < interval(used[:, k], DEVICES)
    assert used.max() > 1.5


@pytest.mark.parametrize("counted", [True, False])
def test_tci_mean_reference_meets_it_on_average_over_devices(counted: bool) -> None:
    """Without the policy's own power counted, the mean is E1(g_th) times the budget."""
    policy = policy_of("tci", reference="mean", count_policy_power=counted, relative=False)
    _, link, got = run(policy)
    used = (got.p.abs().square() * link.power)[:, 0].mean(1) / BUDGET
    expected = 1.0 if counted else special.exp1(0.1)
    assert abs(used.mean() - expected) < interval(used)


@pytest.mark.parametrize("variance", [0.0, 0.25])
@pytest.mark.parametrize(("gain", "threshold"), [(1.0, 0.1), (0.2, 0.3)])
def test_tci_silent_fraction(gain: float, threshold: float, variance: float) -> None:
    """1 - exp(-g_th / beta), binomial; beta is the estimate's mean gain."""
    _, _, got = run(policy_of("tci", relative=False), gain, variance, threshold)
    silent = int((~got.active).sum())
    share = 1 - math.exp(-threshold / (gain * (1 + variance)))
    assert stats.binomtest(silent, STATES * DEVICES, share).pvalue > LEVEL
