"""Approximate message passing against its state evolution.

Seeds are fixed; tolerances are those of finite size, stated where they are. Mutations that make a
test here fail: no Onsager term, one divided by n for m, one with the new residual's sign; the
noise's estimate over n for m; hard for soft thresholding; the last estimate for the best one.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats
from torch import Tensor

from otafl.codecs.amp import amp, amp_step, default_threshold, minimax_threshold
from otafl.factorised.shrinkage import soft

pytestmark = pytest.mark.law

N, RUNS = 2000, 8


def problem(delta: float, sparsity: float, sigma: float, seed: int = 0) -> tuple[Tensor, ...]:
    """x [RUNS, N] with a share of Gaussian reals, the others 0 (so many and of such a norm that
    its moments are exact), a Gaussian matrix [m, N] with columns of mean square norm 1, and y."""
    rng = np.random.default_rng(seed)
    m, count = round(delta * N), round(sparsity * N)
    x = np.zeros((RUNS, N))
    for row in x:
        values = rng.standard_normal(count)
        values *= math.sqrt(count) / np.linalg.norm(values)
        row[rng.choice(N, count, replace=False)] = values
    matrix = rng.standard_normal((m, N)) / math.sqrt(m)
    y = x @ matrix.T + sigma * rng.standard_normal((RUNS, m))
    return tuple(torch.from_numpy(part) for part in (x, matrix, y))


def thresholded_error(tau: float, a: float, sparsity: float) -> float:
    """E (soft(X + tau Z, a tau) - X)^2: of X = 0 in closed form, of a Gaussian X by integration."""
    zero = 2 * tau**2 * ((1 + a**2) * stats.norm.sf(a) - a * stats.norm.pdf(a))

    def given(x: float) -> float:
        """E over Z at X = x, the risk of the soft threshold (Donoho and Johnstone 1994)."""
        u, v = a - x / tau, a + x / tau
        inside = (x / tau) ** 2 * (stats.norm.cdf(u) - stats.norm.cdf(-v))
        tails = (1 + a**2) * (stats.norm.sf(u) + stats.norm.sf(v))
        return tau**2 * (inside + tails - v * stats.norm.pdf(u) - u * stats.norm.pdf(v))

    normal = integrate.quad(lambda x: given(x) * stats.norm.pdf(x), -8, 8, limit=200)[0]
    return (1 - sparsity) * zero + sparsity * normal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delta", "sparsity", "sigma", "a"),
    [(0.5, 0.1, 0.0, 1.5), (0.5, 0.1, 0.1, 1.5), (0.5, 0.2, 0.05, 1.3), (0.3, 0.05, 0.02, 1.8)],
)
def test_error_follows_state_evolution(
    delta: float, sparsity: float, sigma: float, a: float
) -> None:
    """Over 12 steps, on 8 x 2,000 reals: the mean squared error after each is within 10 % of that
    predicted from the noise |z|^2 / m that the step sees, and with noise in y (without it errors of
    a few per cent a step add up) within 16 % of the prediction from sigma and the start alone."""
    x, matrix, y = problem(delta, sparsity, sigma)
    estimate, z = torch.zeros_like(x), y
    squared_tau = sigma**2 + sparsity / delta
    for _step in range(12):
        seen = float(z.square().sum(1).mean()) / z.shape[1]
        estimate, z = amp_step(y, estimate, z, matrix, a)
        error = float((estimate - x).square().mean())
        assert error == pytest.approx(thresholded_error(math.sqrt(seen), a, sparsity), rel=0.1)
        law = thresholded_error(math.sqrt(squared_tau), a, sparsity)
        if sigma:
            assert seen == pytest.approx(squared_tau, rel=0.18)
            assert error == pytest.approx(law, rel=0.16)
        squared_tau = sigma**2 + law / delta


def test_what_a_step_sees_is_the_truth_plus_gaussian_noise() -> None:
    """x + A^T z - x_true after five steps: Kolmogorov-Smirnov against N(0, |z|^2 / m) on one row of
    2,000, level 1e-4. Without the Onsager term it is correlated with the signal and not normal."""
    x, matrix, y = problem(0.5, 0.2, 0.05, 1)
    estimate, z = torch.zeros_like(x), y
    for _ in range(5):
        estimate, z = amp_step(y, estimate, z, matrix, 1.3)
    noise = (estimate + z @ matrix - x)[0]
    tau = float(z[0].norm()) / math.sqrt(z.shape[1])
    assert stats.kstest(noise.numpy() / tau, "norm").pvalue > 1e-4
    assert abs(float(noise @ x[0])) / float(noise.norm() * x[0].norm()) < 4 / math.sqrt(N)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_exact_recovery_below_the_phase_transition_and_none_above(seed: int) -> None:
    """At half as many measurements as reals soft thresholding recovers up to 19 % non-zero (Donoho
    and Tanner: rho = 0.386 at delta = 1/2): 12 % to 1e-3 of the power in 60 steps, 30 % not."""
    for sparsity, recovered in ((0.12, True), (0.3, False)):
        x, matrix, y = problem(0.5, sparsity, 0.0, seed)
        error = (amp(y, matrix, 60, 1.4) - x).square().sum() / x.square().sum()
        assert bool(error < 1e-3) == recovered
        assert error < 1


def test_at_8_by_256_it_diverges_and_the_best_is_kept() -> None:
    """The last estimate is astronomically far off; the one that is kept fits y no worse than 0."""
    rng = np.random.default_rng(0)
    x = np.zeros((20, 256))
    for row in x:
        row[rng.choice(256, 8, replace=False)] = rng.standard_normal(8)
    matrix = torch.from_numpy(rng.standard_normal((8, 256)) / math.sqrt(8))
    y = torch.from_numpy(x) @ matrix.T
    best = amp(y, matrix, 300, 1.5)
    assert best.isfinite().all()
    assert ((y - best @ matrix.T).norm(dim=1) <= y.norm(dim=1)).all()


def test_zero_is_recovered_as_zero() -> None:
    _, matrix, y = problem(0.5, 0.1, 0.0)
    assert amp(torch.zeros_like(y), matrix, 10, 1.5).eq(0).all()


def test_soft_threshold_by_hand() -> None:
    r = torch.tensor([-3.0, -1, -0.5, 0, 0.5, 1, 3])
    assert soft(r, torch.tensor([1.0])).tolist() == [-2, 0, 0, 0, 0, 0, 2]


THRESHOLDS = np.arange(0.8, 3.0, 0.3)
"""Beside the default one: from below its value at m/n = 1 to above that at 0.01."""


def decibels_above_the_best(delta: float, non_zeros: float, a: float | None = None) -> float:
    """Error of 48 recoveries in 30 steps at the default threshold (or at a) over that at the best
    of `THRESHOLDS`, 20 dB over the noise. non_zeros: per measurement. Of few measurements more
    reals are taken."""
    n = 2048 if delta < 0.1 else 512
    m, rng = round(delta * n), np.random.default_rng(0)
    x = np.zeros((48, n))
    for row in x:
        place = rng.choice(n, max(1, round(non_zeros * m)), replace=False)
        row[place] = rng.standard_normal(len(place))
    matrix = rng.standard_normal((m, n)) / math.sqrt(m)
    y = x @ matrix.T
    level = 0.1 * np.linalg.norm(y, axis=1, keepdims=True) / math.sqrt(m)
    y += level * rng.standard_normal(y.shape)
    true, received, sensing = (torch.from_numpy(one) for one in (x, y, matrix))

    def error(threshold: float) -> float:
        return float((amp(received, sensing, 30, threshold) - true).square().sum())

    best = min(error(float(one)) for one in THRESHOLDS)
    return 10.0 * math.log10(error(default_threshold(m, n) if a is None else a) / best)


@pytest.mark.parametrize("delta", [0.027, 0.05, 0.1, 0.2, 0.5, 0.8])
def test_default_threshold_follows_the_simulated_optimum(delta: float) -> None:
    """Within 0.2 dB of the best of a grid, for one non-zero real in ten measurements."""
    assert decibels_above_the_best(delta, 0.1) < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("non_zeros", [0.03, 0.3, 0.5])
@pytest.mark.parametrize("delta", [0.027, 0.1, 0.5, 0.8])
def test_default_threshold_for_other_signals(delta: float, non_zeros: float) -> None:
    assert decibels_above_the_best(delta, non_zeros) < (2.0 if delta <= 0.5 else 4.0)


@pytest.mark.parametrize(
    ("a", "delta", "more_db"), [(1.5, 0.027, 10.0), (1.5, 0.1, 2.0), (2.5, 0.5, 4.0)]
)
def test_one_threshold_for_all_ratios_is_worse(a: float, delta: float, more_db: float) -> None:
    """1.5, as at one half, recovers nothing at 2.7 %."""
    assert decibels_above_the_best(delta, 0.1, a) > more_db


def test_minimax_threshold_has_the_least_worst_risk() -> None:
    """By search, over non-zero reals of size 0.5 to 30 in noise of variance 1: the worst are the
    largest."""
    z = np.linspace(-10.0, 10.0, 4001)
    density = stats.norm.pdf(z) * (z[1] - z[0])

    def risk(x: float, a: float) -> float:
        r = x + z
        return float((density * (np.sign(r) * np.maximum(np.abs(r) - a, 0.0) - x) ** 2).sum())

    for share in (0.003, 0.05, 0.2):

        def worst(a: float, share: float = share) -> float:
            most = max(risk(x, a) for x in (0.5, 1.0, 2.0, 4.0, 8.0, 30.0))
            return (1.0 - share) * risk(0.0, a) + share * most

        found = optimize.minimize_scalar(worst, bounds=(0.1, 4.0), method="bounded")
        assert minimax_threshold(share) == pytest.approx(found.x, abs=2e-3)
    values = [round(default_threshold(m, 1000), 2) for m in (27, 100, 500)]
    assert values == [2.35, 1.95, 1.4]  # as the setting's description says
    assert np.all(np.diff([default_threshold(m, 1000) for m in range(1, 1001)]) < 0)
