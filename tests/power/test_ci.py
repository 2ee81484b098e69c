"""Channel inversion over fading. Seeds are fixed; every test's false-alarm level over all that it
compares is 1e-4.
"""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from support.fading_runs import BUDGET, DEVICES, LEVEL, compute_interval, run
from support.power_links import make_policy

pytestmark = pytest.mark.law


def test_ci_reaches_as_far_as_the_weakest() -> None:
    """At equal budgets and symbol powers eta / P = min_k g_k is exponential with mean 1 / K."""
    _, _, got = run(make_policy("ci"), m=torch.ones(DEVICES).double())
    law = stats.expon(scale=1 / DEVICES)
    assert stats.kstest((got.eta / BUDGET).ravel().numpy(), law.cdf).pvalue > LEVEL


def test_ci_error_with_an_imperfect_estimate_is_the_gain_error() -> None:
    """c = Re(h / h_hat): given h_hat, h is normal about h_hat / (1 + v), so E c = 1 / (1 + v)."""
    h, _, got = run(make_policy("ci"), variance=0.25)
    c = (h * got.p).real / got.eta.sqrt()[..., None]
    strong = run(make_policy("ci"), variance=0.25)[1].h.abs() > 0.5
    sample = c[strong]  # E[c; h_hat] is the same for every h_hat, and its spread is then bounded
    assert abs(sample.mean() - 0.8) < compute_interval(sample)
