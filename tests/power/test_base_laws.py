"""Budgets of peak policies over fading, which hold with certainty.

Mutations that make a test here fail: m left out of the bound, the mean over devices for the max.
"""

from __future__ import annotations

import pytest
from support.fading_runs import BUDGET, run
from support.power_links import policy_of

from otafl.core import registry
from otafl.power.base import PowerPolicy

pytestmark = pytest.mark.law

ALL = {name: policy_of(name) for name in registry.names("power")} | {
    "tci": policy_of("tci", constraint="peak"),
    "smcv": policy_of("smcv", variation=0.7),
}
PEAK = {name: policy for name, policy in ALL.items() if policy.keeps == "peak"}


@pytest.mark.parametrize("policy", PEAK.values(), ids=PEAK)
@pytest.mark.parametrize("variance", [0.0, 0.25])
def test_peak_policies_never_exceed_the_budget(policy: PowerPolicy, variance: float) -> None:
    """Whatever the estimate, in each of 160,000 states; nothing random in the bound."""
    _, link, got = run(policy, variance=variance)
    used = got.p.abs().square() * link.power / BUDGET
    assert used.max() <= 1 + 1e-12
