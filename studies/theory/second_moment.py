r"""Closed form of federated gradient descent on quadratics: two moments of the error.

The global model's error z = w - w* follows, with the gains a_k of a round (over the number of
devices on air), z' = (I - b sum_k a_k H_k) z - b sum_k a_k g_k + n. The gains and the noise n are
independent of z, given the mean symbol powers. Then E z and M = E z z^T have a recursion with the
first two moments of the gains only, and the excess risk is tr(H M) / 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from otafl.engine.assembly import assemble
from otafl.scenario import Point
from otafl.validation.regressions import MEAN, NOISE, VARIANCE, QuadraticProblem
from otafl.validation.sheet import RULES, Scalars, States

DRAWS = 10_000
"""Fading states over which the gains of a policy are averaged."""
SAME = 0.01
"""Change of the logarithm of a ratio of powers up to which the gains are those of before."""
LEAST = 1e-30
"""Smallest mean symbol power."""


class Gains(NamedTuple):
    """Moments of a round's gains a_k: mean [K], product [K, K], and noise variance."""

    mean: np.ndarray
    product: np.ndarray
    noise: float


class Moments(NamedTuple):
    """E z [P] and E z z^T [P, P]."""

    first: np.ndarray
    second: np.ndarray


Rule = Callable[[np.ndarray], Gains]
"""Gains of a round by the mean symbol powers [K]."""


def read_problems(point: Point, trials: int) -> list[QuadraticProblem]:
    """The quadratics of each trial of a point, in which an intercept and a penalty are inputs."""
    parts = assemble([point], range(trials))
    data, model = parts.samples.training_data, parts.model
    x = data.x.double().numpy()
    x = np.column_stack([x, np.ones(len(x))]) if model.has_intercept else x
    y = data.y.double().numpy()[:, 0]
    penalty = np.full(x.shape[1], model.ridge)
    penalty[x.shape[1] - int(model.has_intercept) :] = 0.0
    found = []
    for trial in range(trials):
        own = range(trial * data.num_devices, (trial + 1) * data.num_devices)
        samples = [data.index[k, : int(data.count[k])].numpy() for k in own]
        hessians = [x[i].T @ x[i] / len(i) + np.diag(penalty) for i in samples]
        moments = [x[i].T @ y[i] / len(i) for i in samples]
        found.append(QuadraticProblem(np.stack(hessians), np.stack(moments)))
    return found


def make_equal_gains(devices: int, gamma: float, slots: int = 1) -> Gains:
    """Gains of equal power over Rayleigh fading with `gamma` times the noise's power density."""
    spread = VARIANCE / MEAN**2 * np.eye(devices)
    noise = NOISE * slots / (gamma * (MEAN * devices) ** 2)
    return Gains(np.full(devices, 1.0 / devices), (1.0 + spread) / devices**2, noise)


def compute_least_error(states: States) -> Scalars:
    """The gains of least mean squared error: the weakest devices at full power, the others at one.

    Of the receive scalings with the j weakest at full power, the smallest is the optimum (Cao et
    al. 2020, theorem 1). `otafl.validation.sheet` finds the same by bisection.
    """
    reach = states.root_q
    order = np.argsort(reach, 1)
    r, m = (np.take_along_axis(one, order, 1) for one in (reach, states.m))
    s = ((m * r).cumsum(1) / ((m * r**2).cumsum(1) + states.noise[:, None])).max(1)
    c = np.minimum(1.0, s[:, None] * reach)
    return Scalars(c, s**-2.0, np.ones_like(c, dtype=bool))


def make_policy_rule(config: Any, snr: float, devices: int, noise: float = NOISE) -> Rule:
    """Gains of a power policy, averaged over fading states, at mean symbol powers."""
    rng = np.random.default_rng(7)
    h = rng.normal(size=(DRAWS, devices, 2)) @ np.array([1.0, 1.0j]) / np.sqrt(2.0)
    name = config.name
    ones, rule = np.ones((DRAWS, devices)), RULES[name]
    rule = compute_least_error if name == "cao_static" else rule

    known: list[tuple[np.ndarray, Gains]] = []

    def compute(powers: np.ndarray) -> Gains:
        # all policies depend on the powers' ratios only, and the noise has their unit
        unit = float(powers.max())
        ratios = powers / unit
        if known and np.abs(np.log(ratios / known[0][0])).max() < SAME:
            return known[0][1]._replace(noise=unit * known[0][1].noise)
        found = average_gains(ratios)
        known[:] = [(ratios, found)]
        return found._replace(noise=unit * found.noise)

    def average_gains(ratios: np.ndarray) -> Gains:
        states = States(h, ones * ratios, ones * snr, ones, np.full(DRAWS, noise), 1, config)
        found: Scalars = rule(states)
        count = found.active.sum(1)
        a = found.c * found.active / count[:, None]
        return Gains(a.mean(0), a.T @ a / DRAWS, float((noise / count**2 / found.eta).mean()))

    return compute


def start_at_zero(problem: QuadraticProblem) -> Moments:
    """The moments of a model of zeros."""
    return Moments(-problem.optimum, np.outer(problem.optimum, problem.optimum))


def compute_symbol_powers(problem: QuadraticProblem, at: Moments, step: float) -> np.ndarray:
    """Mean squares [K] of the coordinates of an increment -b g_k(w)."""
    h, g = problem.hessians, problem.gradients
    square = np.einsum("kij,jl,kil->k", h, at.second, h) + 2.0 * np.einsum(
        "ki,kij,j->k", g, h, at.first
    )
    return np.maximum(step**2 * (square + (g**2).sum(1)) / g.shape[1], LEAST)


def advance(problem: QuadraticProblem, at: Moments, step: float, gains: Gains) -> Moments:
    """The moments after a round."""
    h, g = problem.hessians, problem.gradients
    mean_h, mean_g = np.tensordot(gains.mean, h, 1), gains.mean @ g
    both_h, both_g = np.tensordot(gains.product, h, 1), gains.product @ g
    moved = np.einsum("kij,jl,klm->im", h, at.second, both_h, optimize=True)
    cross = -step * np.outer(at.first, mean_g) + step**2 * np.einsum(
        "kij,j,kl->il", h, at.first, both_g
    )
    second = at.second - step * (mean_h @ at.second + at.second @ mean_h) + step**2 * moved
    second = second + cross + cross.T + step**2 * g.T @ both_g + gains.noise * np.eye(len(second))
    return Moments(at.first - step * (mean_h @ at.first + mean_g), second)


def compute_risk(problem: QuadraticProblem, at: Moments) -> float:
    """The mean excess risk."""
    return float(np.trace(problem.hessian @ at.second) / 2.0)


def run_theory(
    problem: QuadraticProblem, rounds: int, step: float, rule: Rule | Gains
) -> np.ndarray:
    """Excess risk [R + 1] from a model of zeros on."""
    at = start_at_zero(problem)
    out = [compute_risk(problem, at)]
    for _ in range(rounds):
        gains = rule if isinstance(rule, Gains) else rule(compute_symbol_powers(problem, at, step))
        at = advance(problem, at, step, gains)
        out.append(compute_risk(problem, at))
    return np.array(out)


def run_model_theory(
    problem: QuadraticProblem, steps: np.ndarray, snr: float, growth: float, sends_models: bool
) -> np.ndarray:
    """Excess risk [R + 1] over a channel without fading, with precoding by the largest power."""
    count, size = problem.moments.shape
    at, out = start_at_zero(problem), []
    for t, step in enumerate(steps):
        out.append(compute_risk(problem, at))
        level = snr * (t + 1.0) ** growth
        if sends_models:
            kept = np.eye(size) - step * problem.hessians
            around = at.second - np.outer(at.first, at.first)
            centre = problem.optimum + kept @ at.first - step * problem.gradients
            spread = np.einsum("kij,jl,kil->k", kept, around, kept)
            powers = ((centre**2).sum(1) + spread) / size
            sent = problem.optimum @ (problem.optimum + 2.0 * at.first) + np.trace(at.second)
            down = NOISE * sent / size / level
            shift = down * np.einsum("kij,kjl->il", kept, kept) / count**2
        else:
            powers, shift = compute_symbol_powers(problem, at, step), np.zeros((size, size))
        mean = np.full(count, 1.0 / count)
        gains = Gains(mean, np.outer(mean, mean), NOISE * powers.max() / (level * count**2))
        at = advance(problem, at, float(step), gains)
        at = Moments(at.first, at.second + shift)
    return np.array([*out, compute_risk(problem, at)])


def average_end(values: np.ndarray | xr.DataArray, first: int) -> np.ndarray:
    """Mean over the last axis from a place on."""
    return np.asarray(values)[..., first:].mean(-1)
