"""Laws of approximate message passing: its state evolution."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from otafl.codecs.amp import run_amp, take_amp_step
from otafl.codecs.sensing import Sensing
from otafl.core.rng import Streams
from otafl.core.units import db_to_linear
from otafl.laws.bench import CONFORMANCE, Bench
from otafl.laws.checks import (
    Check,
    check_at_least,
    check_at_most,
    check_distribution,
    check_mean,
    state_law,
)

AMP = CONFORMANCE / "amp"

DMM_2009 = "Donoho, Maleki, Montanari 2009"
DMM_2011 = "Donoho, Maleki, Montanari 2011"

LENGTH = 1000
STEPS = 12

SETTINGS = [
    (0.5, 0.1, 0.0, 1.5),
    (0.5, 0.1, 0.1, 1.5),
    (0.5, 0.2, 0.05, 1.3),
    (0.3, 0.05, 0.02, 1.8),
]
"""Measurements and non-zero numbers per coordinate, standard deviation of the noise, threshold."""


@functools.lru_cache(maxsize=8)
def _problem(
    bench: Bench, runs: int, delta: float, sparsity: float, sigma: float, length: int = LENGTH
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw a problem.

    Returns
    -------
    x : Tensor, [S, 1, n]
        A share `sparsity` of normal numbers with mean square one; the others are 0.
    matrix : Tensor, [S, m, n]
        Normal matrix whose columns have a mean square norm of one.
    y : Tensor, [S, 1, m]
        Measurements.
    """
    streams = Streams([0] * runs, list(range(runs)), bench.torch_device, torch.float64)
    m, some = round(delta * length), max(1, round(sparsity * length))
    matrix = streams.draw_normal(AMP, 0, (m, length)) / math.sqrt(m)
    values = streams.draw_normal(AMP / "values", 0, (some,))  # their columns are exchangeable
    values = values / values.square().mean(1, keepdim=True).sqrt()
    x = torch.nn.functional.pad(values, (0, length - some))[:, None]
    noise = streams.draw_normal(AMP / "noise", 0, (m,))[:, None]
    return x, matrix, x @ matrix.mT + sigma * noise


@state_law(
    "codec compressed_sensing: state evolution", DMM_2009, "m/n={0[0]:g}, {0[1]:g}", SETTINGS
)
def _evolution(bench: Bench, setting: tuple[float, ...]) -> Iterator[Check]:
    """Compare the errors of twelve steps, and the noise of each step, with their laws.

    The error of a step follows from its noise. With measurement noise, the noise of every step also
    follows from the start. Both laws are exact for large problems: 3 % is allowed for the size, and
    1 % for each step before.
    """
    delta, sparsity, sigma, a = setting
    x, matrix, y = _problem(bench, bench.scale_size(48), delta, sparsity, sigma)
    guess, residual = torch.zeros_like(x), y
    law = sigma**2 + sparsity / delta
    for step in range(STEPS):
        tau = residual.square().mean((1, 2)).cpu().numpy()
        if sigma:
            yield check_mean(law, tau, f"step {step}, noise", bias=(0.03 + 0.01 * step) * law)
        guess, residual = take_amp_step(y, guess, residual, matrix, a)
        off = (guess - x).square().mean((1, 2)).cpu().numpy()
        seen = np.array([_soft_error(float(one), sparsity, a) for one in tau])
        yield check_mean(1.0, off / seen, f"step {step}, error", bias=0.03)
        law = sigma**2 + _soft_error(law, sparsity, a) / delta


@state_law(
    "codec compressed_sensing: noise that a step sees", f"{DMM_2009}; the truth and normal noise"
)
def _check_state(bench: Bench) -> Iterator[Check]:
    """Compare x + A^T z less the truth, after five steps, with normal noise.

    Its variance is |z|^2 / m, and its product with the truth has a mean of 0.
    """
    x, matrix, y = _problem(bench, 1, 0.5, 0.2, 0.05, 2000)
    guess, residual = torch.zeros_like(x), y
    for _ in range(5):
        guess, residual = take_amp_step(y, guess, residual, matrix, 1.3)
    noise = (guess + residual @ matrix - x).ravel() / residual.square().mean().sqrt()
    yield check_distribution(noise.cpu().numpy(), stats.norm.cdf, "noise")
    yield check_mean(0.0, (noise * x.ravel()).cpu().numpy(), "product with the truth")


@state_law("codec compressed_sensing: phase transition", "Donoho and Tanner: 0.386 at m/n = 1/2")
def _transition(bench: Bench) -> Iterator[Check]:
    """Recover sparse numbers to 1e-3 of their power in 60 steps.

    This succeeds with 12 % of non-zero numbers, and fails with 30 %, above the transition at 19 %.
    There are three problems of 2,000 each.
    """
    for sparsity, recovered in ((0.12, True), (0.3, False)):
        x, matrix, y = _problem(bench, 3, 0.5, sparsity, 0.0, 2000)
        for trial in range(3):
            off = run_amp(y[trial], matrix[trial], 60, 1.4) - x[trial]
            error = float(off.square().sum() / x[trial].square().sum())
            case = f"{sparsity:.0%} not zero, problem {trial}"
            yield (
                check_at_most(1e-3, error, case=case)
                if recovered
                else check_at_least(1e-3, error, case)
            )
            yield check_at_most(1.0, error, case=f"{case}, over that of zero")


RATIOS = (0.027, 0.05, 0.1, 0.2, 0.5, 0.8)
"""Measurements per coordinate."""

THRESHOLDS = np.linspace(0.8, 3.2, 13)
"""Thresholds, from below the default one at m/n = 1 to above that at 0.01."""


def _default(bench: Bench, ratio: float) -> float:
    """Return the codec's own threshold for a number of measurements per coordinate."""
    codec = bench.build_rig(1, 1, {"codec": "compressed_sensing", "transport": "ideal"}).link.codec
    settings: Any = codec.settings
    streams = Streams([0], [0], bench.torch_device, torch.float64)
    return Sensing(settings, streams).get_threshold(round(1000 * ratio), 1000)


@state_law("codec compressed_sensing: default threshold", DMM_2011, "m/n={:g}", RATIOS)
def _threshold(bench: Bench, ratio: float) -> Iterator[Check]:
    """Bound the error at the default threshold by 1 dB above the least error over thresholds.

    Both are by state evolution of 30 steps from 0. One number in ten measurements is non-zero, and
    the noise is 20 dB below the measurements.
    """
    least = min(_iterate_evolution(ratio, float(a)) for a in THRESHOLDS)
    yield check_at_most(
        db_to_linear(1.0) * least, _iterate_evolution(ratio, _default(bench, ratio))
    )


SIGNALS = [*product(RATIOS, (0.1,)), *product((0.027, 0.1, 0.5, 0.8), (0.03, 0.3, 0.5))]
"""Measurements per coordinate, and non-zero numbers per measurement."""


@state_law(
    "codec compressed_sensing: default threshold of recoveries",
    f"{DMM_2011}; dB above the best threshold",
    "m/n={0[0]:g}, {0[1]:g} not zero a measurement",
    SIGNALS,
)
def _check_recovery(bench: Bench, signal: tuple[float, float]) -> Iterator[Check]:
    """Compare the error at the default threshold with the least error over a grid of thresholds.

    48 signals are recovered in 30 steps, 20 dB over the noise. The difference is at most 0.2 dB for
    one non-zero number in ten measurements, 2 dB for others, and 4 dB if nearly all is measured. A
    quick run has only the first.
    """
    ratio, non_zeros = signal
    if bench.quick and non_zeros != 0.1:
        return
    x, matrix, y = _sparse(ratio, non_zeros)

    def error(a: float) -> float:
        return float((run_amp(y, matrix, 30, a) - x).square().sum())

    most = 0.2 if non_zeros == 0.1 else 2.0 if ratio <= 0.5 else 4.0
    best = min(error(float(a)) for a in np.arange(0.8, 3.0, 0.3))
    found = error(_default(bench, len(matrix) / matrix.shape[1]))
    yield check_at_most(most, 10.0 * math.log10(found / best), 0.0)


def _sparse(ratio: float, non_zeros: float) -> tuple[Tensor, Tensor, Tensor]:
    """Draw 48 signals x [48, n], a matrix [m, n] and measurements y.

    n is larger for few measurements per coordinate.
    """
    n = 2048 if ratio < 0.1 else 512
    m, random = round(ratio * n), np.random.default_rng(0)
    x = np.zeros((48, n))
    for row in x:
        place = random.choice(n, max(1, round(non_zeros * m)), replace=False)
        row[place] = random.standard_normal(len(place))
    matrix = random.standard_normal((m, n)) / math.sqrt(m)
    y = x @ matrix.T
    level = 0.1 * np.linalg.norm(y, axis=1, keepdims=True) / math.sqrt(m)
    y += level * random.standard_normal(y.shape)
    return torch.from_numpy(x), torch.from_numpy(matrix), torch.from_numpy(y)


def _iterate_evolution(ratio: float, a: float) -> float:
    """Compute the least mean squared error of 30 steps, over the power of the signal."""
    sparsity = 0.1 * ratio
    tau2, errors = sparsity / ratio * 1.01, [sparsity]
    for _ in range(30):
        errors.append(_soft_error(tau2, sparsity, a))
        tau2 = (0.01 * sparsity + errors[-1]) / ratio
        if errors[-1] > 10.0 * sparsity:  # it has diverged
            break
    return min(errors) / sparsity


def _soft_error(tau2: float, sparsity: float, a: float) -> float:
    """Compute E[(soft(X + tau Z, a tau) - X)^2].

    It has a closed form for X = 0. For a normal X it is an integral over r = X + tau Z, given which
    X is normal about r / (1 + tau^2).
    """
    tau = math.sqrt(tau2)
    zero = 2.0 * tau2 * ((1.0 + a * a) * _tail(a) - a * _density(a))
    r = _GRID * math.sqrt(1.0 + tau2)
    soft = np.sign(r) * np.maximum(np.abs(r) - a * tau, 0.0)
    about = r / (1.0 + tau2)
    some = (_WEIGHT * ((soft - about) ** 2 + tau2 / (1.0 + tau2))).sum()
    return float((1.0 - sparsity) * zero + sparsity * some)


_GRID = np.linspace(-12.0, 12.0, 4_001)
_WEIGHT = stats.norm.pdf(_GRID) * (_GRID[1] - _GRID[0])


def _tail(a: float) -> float:
    return 0.5 * math.erfc(a / math.sqrt(2.0))


def _density(a: float) -> float:
    return math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
