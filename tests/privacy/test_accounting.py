"""Guarantees from mu, against integrals of densities."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import integrate, stats

from otafl.core.errors import UserError
from otafl.privacy.accounting import (
    MOST,
    compute_delta,
    compute_epsilon,
    compute_sampled_epsilon,
    compute_sampled_mu,
)

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(("mu", "epsilon"), [(0.1, 0.0), (1.0, 0.5), (3.0, 2.0)])
def test_delta_is_what_the_best_test_gains(mu: float, epsilon: float) -> None:
    """The integral of (p - e^epsilon q)+ of N(mu, 1) and N(0, 1), which is over x > epsilon / mu +
    mu / 2."""
    law, _ = integrate.quad(
        lambda x: stats.norm.pdf(x - mu) - np.exp(epsilon) * stats.norm.pdf(x),
        epsilon / mu + mu / 2.0,
        mu + 40.0,
        epsabs=1e-14,
    )
    assert compute_delta(mu, epsilon) == pytest.approx(law, rel=1e-6, abs=1e-13)


def test_no_epsilon_is_needed_for_next_to_nothing() -> None:
    assert compute_epsilon(0.0, 1e-5) == 0.0
    assert compute_epsilon(1e-6, 1e-5) == 0.0
    assert compute_delta(0.0, 0.0) == 0.0


@pytest.mark.parametrize("replace", [True, False])
def test_all_sampled_is_none_sampled(replace: bool) -> None:
    """Rounds of unequal mu that all take part in add in squares."""
    counts = ((0.02, 30), (0.16, 4))
    mu = np.sqrt(sum(rounds * one**2 for one, rounds in counts))
    found = compute_sampled_epsilon(counts, 1.0 - 1e-9, 1e-5, replace)
    assert found == pytest.approx(compute_epsilon(float(mu), 1e-5), rel=1e-3)


def test_sampling_amplifies() -> None:
    """For few that are drawn epsilon is about q times as large; the largest mu within a bound is
    within it, and one that is 0.2 % larger is not."""
    one, tenth = (compute_sampled_epsilon(((0.16, 50),), q, 1e-5, True) for q in (1.0 - 1e-9, 0.1))
    assert 0.05 < tenth / one < 0.2
    assert compute_sampled_epsilon((), 0.1, 1e-5, True) == 0.0
    mu = compute_sampled_mu(1.0, 1e-5, 50, 0.1, True)
    assert compute_sampled_epsilon(((mu, 50),), 0.1, 1e-5, True) <= 1.0
    assert compute_sampled_epsilon(((1.002 * mu, 50),), 0.1, 1e-5, True) > 1.0
    assert compute_sampled_mu(1e-7, 1e-5, 5000, 0.9, True) == 0.0
    assert compute_sampled_mu(1e9, 1e-5, 1, 0.9, True) == MOST


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(UserError, match=r"^devices.selection: 'poisson' .*pip install 'otafl\[pri"):
        compute_sampled_epsilon(((0.5, 7),), 0.123, 1e-5, True)
