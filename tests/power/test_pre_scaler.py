"""Pre-scalers planned on statistics alone, for six devices whose gains spread over 20 dB."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize
from support.power_links import (
    N,
    fill_in,
    make_plain_link,
    make_policy,
    make_rayleigh_statistics,
    perturb,
)

from otafl.core.contracts import Coefficients, Link
from otafl.power.pre_scaler import PreScaler, minimise_cost, solve_best_zero_bias, solve_zero_bias

STATES = 2_000
GAIN = torch.tensor([0.1, 0.3, 1.0, 2.0, 5.0, 10.0], dtype=torch.float64)
K, P = len(GAIN), 4.0
SPREADS = {"spread": np.geomspace(0.3, 30.0, 5), "two kinds": np.array([0.5, 0.5, 40.0, 40.0])}


def coefficients(**fields: Any) -> tuple[Link, Coefficients, torch.Tensor]:
    """Link and scalars of all states at unit symbol powers, and alpha [K] of the plan."""
    z = np.random.default_rng(4).standard_normal((2, STATES, K)) * math.sqrt(0.5)
    h = torch.from_numpy(z[0] + 1j * z[1]) * GAIN.sqrt()
    policy = make_policy("pre_scaler", **fields)
    link = fill_in(policy, make_plain_link(h, P, gain=GAIN.expand(STATES, K)))
    state = policy.prepare(make_rayleigh_statistics(link), link.hyper)
    return link, policy.compute_coefficients(state, link)[1], state[1][0]


def cost(gamma: np.ndarray, strength: np.ndarray, weight: float) -> float:
    """Bias and variance, term by term, for m = 1."""
    alpha = gamma * np.exp(-(gamma**2) / strength)
    p, total = alpha / alpha.sum(), alpha.sum()
    bias = weight * len(p) * ((p - 1 / len(p)) ** 2).sum()
    return float(bias + (p * gamma / total - p**2).sum() + N / total**2)


@pytest.mark.exact
@pytest.mark.parametrize(("spread", "weight"), [("spread", 0.3), ("two kinds", 3.0)])
def test_plan_is_a_numerical_minimum(spread: str, weight: float) -> None:
    """No worse than what another method finds from five starts without derivatives, nor than both
    ends: every alpha as large as can be, and all alike."""
    strength = SPREADS[spread]
    top, count = np.sqrt(strength / 2.0), len(strength)
    planned = cost(minimise_cost(strength, N, weight), strength, weight)
    rng = np.random.default_rng(0)
    others = [
        optimize.minimize(
            lambda part: cost(part * top, strength, weight),
            rng.uniform(0.05, 1.0, count),
            method="SLSQP",
            bounds=[(1e-6, 1.0)] * count,
            options={"maxiter": 500, "ftol": 1e-14},
        ).fun
        for _ in range(5)
    ]
    assert planned <= min(others) * (1 + 1e-8)
    assert planned < cost(top, strength, weight)
    assert planned < cost(solve_zero_bias(strength), strength, weight)


def common_error(alpha: float, strength: np.ndarray) -> float:
    """Silence and noise where all alpha are this one, term by term, for m = 1."""
    gamma = np.array([_lower(alpha, one) for one in strength])
    on_air = np.exp(-(gamma**2) / strength)
    silence = (gamma**2 * on_air - alpha**2).sum() / (len(strength) * alpha) ** 2
    return float(silence + N / (len(strength) * alpha) ** 2)


def _lower(alpha: float, strength: float) -> float:
    """The smaller gamma with gamma exp(-gamma^2 / strength) = alpha."""
    top = math.sqrt(strength / 2.0)
    return optimize.brentq(lambda g: g * math.exp(-(g**2) / strength) - alpha, 0.0, top, xtol=1e-14)


@pytest.mark.exact
@pytest.mark.parametrize(("spread", "snr_db"), [("spread", 0), ("two kinds", 40), ("alike", -20)])
def test_best_common_gain_is_the_best_of_a_grid(spread: str, snr_db: float) -> None:
    """Of 400 gains from a thousandth of the largest up to it, 1.7 % apart: within a step of the
    best, and no worse."""
    strength = (SPREADS | {"alike": np.ones(8)})[spread] * 10 ** (snr_db / 10)
    gamma = solve_best_zero_bias(strength, N)
    alpha = gamma * np.exp(-(gamma**2) / strength)
    np.testing.assert_allclose(alpha, alpha[0], rtol=1e-9)
    largest = math.sqrt(strength.min() / (2 * math.e))
    grid = largest * np.geomspace(1e-3, 1.0 - 1e-12, 400)
    errors = [common_error(one, strength) for one in grid]
    best = int(np.argmin(errors))
    assert grid[max(best - 1, 0)] <= alpha[0] * (1 + 1e-9)
    assert alpha[0] <= grid[min(best + 1, len(grid) - 1)] * (1 + 1e-9)
    ours = common_error(min(alpha[0], grid[-1]), strength)
    assert ours <= errors[best] * (1 + 1e-9)


@pytest.mark.exact
def test_common_gain_needs_zero_bias() -> None:
    with pytest.raises(ValueError, match="set zero_bias: true, or leave common_gain out"):
        PreScaler(common_gain="best")


@pytest.mark.exact
def test_peak_power_and_scale() -> None:
    """A device of the largest symbol power that just sends is at its budget, others below by their
    symbol power; sqrt(eta) is sum alpha / K over who sends."""
    link, _, alpha = coefficients()
    policy = make_policy("pre_scaler")
    state = policy.prepare(make_rayleigh_statistics(link), link.hyper)
    m = torch.tensor([1.0, 0.5, 4.0, 2.0, 0.1, 3.0]).double()
    sends = torch.ones(STATES, K, dtype=torch.bool)
    sends[:, 4] = False
    edge = (state[0] / math.sqrt(P))[:, None]
    for factor, on in ((1 + 1e-9, True), (1 - 1e-9, False)):
        at = perturb(
            link, symbol_power=m.expand(STATES, 1, K), transmit_mask=sends, h=factor * edge * 1j
        )
        got = policy.compute_coefficients(state, at)[1]
        assert bool(got.on_air_mask[..., :4].all()) == on == bool(got.on_air_mask.any())
        if on:
            used = (got.p.abs().square() * m / P)[0, 0]
            torch.testing.assert_close(used, m / 4.0 * sends[0])
        root = alpha[sends[0]].sum() / 5 / 2.0  # 1 / sqrt(m) is a half
        torch.testing.assert_close(got.eta.sqrt(), root.expand(STATES, 1))
