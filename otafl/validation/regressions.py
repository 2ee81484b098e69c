"""Laws of federated linear regression over the air: the floor of the excess risk.

K devices of equal weight have F_k(w) = mean |x^T w - y|^2 / 2 with Hessians H_k and gradients
g_k(w) = H_k (w - w*) + g_k about the common optimum w*, where the g_k add up to 0. H is the mean of
the H_k, and F(w) - F* = (w - w*)^T H (w - w*) / 2. All devices send full gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from otafl.core.contracts import MODEL
from otafl.data.loading import load_cached
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.scenario import expand, load_scenario
from otafl.validation.bench import Bench
from otafl.validation.checks import Check, check_mean, state_law

NOISE = 0.5
"""Noise variance of a received real."""
MEAN, VARIANCE = np.sqrt(np.pi) / 2.0, 1.0 - np.pi / 4.0
"""Mean and variance of the amplitude of Rayleigh fading."""
FEATURES, SAMPLES = 3, 20
STEP = 0.5


@dataclass(frozen=True)
class QuadraticProblem:
    """Quadratics of K devices.

    hessians: [K, P, P]. moments: [K, P], the products of inputs and labels.
    """

    hessians: np.ndarray
    moments: np.ndarray

    @property
    def hessian(self) -> np.ndarray:
        """The mean Hessian."""
        return np.asarray(self.hessians.mean(0))

    @property
    def optimum(self) -> np.ndarray:
        """The common optimum."""
        return np.asarray(np.linalg.solve(self.hessian, self.moments.mean(0)))

    @property
    def gradients(self) -> np.ndarray:
        """The gradients g_k at the common optimum, [K, P]."""
        return self.hessians @ self.optimum - self.moments

    def compute_excess(self, models: np.ndarray) -> np.ndarray:
        """Compute F(w) - F* of models [..., P]."""
        away = models - self.optimum
        return np.asarray(0.5 * np.einsum("...p,pq,...q->...", away, self.hessian, away))


def run_regression(
    bench: Bench, channel: str, gamma: float, rounds: int, trials: int, devices: int = 10
) -> tuple[QuadraticProblem, np.ndarray]:
    """Run a linear regression of `devices` users, one device each, with full batches, by GBMA.

    Returns
    -------
    tuple of QuadraticProblem and ndarray, [R, S, P]
        The problem, and the models after each round.
    """
    data = {"users": devices, "user_samples": SAMPLES, "features": FEATURES, "condition": 3.0}
    training = {"rounds": rounds, "batch_size": SAMPLES, "weights": "uniform"}
    scenario = load_scenario(
        {
            "name": "regression",
            "data": {"name": "ridge", "user_test_samples": 1} | data,
            "model": {"name": "linear", "bias": False},
            "channel": channel,
            "power": {"name": "gbma", "gamma": gamma, "gain_target": "amplitude"},
            "algorithm": {"name": "fedavg", "learning_rate": STEP},
            "devices": {"count": devices},
            "training": training,
            "trials": trials,
            "engine": {"dtype": "float64", "device": bench.device},
        }
    )
    points = expand(scenario)
    engine = Engine(assemble(points, range(trials)))
    models = []
    for t in range(rounds):
        engine.run_round(t)
        models.append(engine.server[MODEL].double().cpu().numpy())
    return _read_problem(points[0].scenario.data), np.stack(models)


def _read_problem(source: Any) -> QuadraticProblem:
    samples = load_cached(source)
    assert samples.owner is not None
    hessians, moments = [], []
    for user in np.unique(samples.owner):
        x = samples.x_train[samples.owner == user].astype(np.float64)
        y = samples.y_train[samples.owner == user, 0].astype(np.float64)
        hessians.append(x.T @ x / len(x))
        moments.append(x.T @ y / len(x))
    return QuadraticProblem(np.stack(hessians), np.stack(moments))


def solve_stationary(problem: QuadraticProblem, noise: float) -> np.ndarray:
    """Solve for the stationary second moment S of w - w* by vectorisation.

    S = A S A + (b / (mu K))^2 [v_h sum_k (H_k S H_k + g_k g_k^T) + (N / E) I], A = I - b H.

    noise: N / E of an increment over b^2.
    """
    count, size = problem.moments.shape
    contraction = np.eye(size) - STEP * problem.hessian
    scale = (STEP / (MEAN * count)) ** 2
    linear = np.kron(contraction, contraction)
    linear = linear + scale * VARIANCE * sum(np.kron(one, one) for one in problem.hessians)
    source = scale * (
        VARIANCE * problem.gradients.T @ problem.gradients + noise / STEP**2 * np.eye(size)
    )
    return np.linalg.solve(np.eye(size**2) - linear, source.ravel()).reshape(size, size)


GBMA = "Sery, Cohen 2020, equations 6 to 9, stationary second moment"


def _average_excess(problem: QuadraticProblem, models: np.ndarray) -> np.ndarray:
    """Return the time average of the excess risk of each trial, [S], from round 40 on."""
    return np.asarray(problem.compute_excess(models[40:]).mean(0))


@state_law("regression: stationary risk", GBMA, "gamma={}", (30.0, 3000.0))
def _stationary_risk(bench: Bench, gamma: float) -> Iterator[Check]:
    """Compare the time average of the excess risk with noise and fading with trace(H S) / 2."""
    run = run_regression(bench, "rayleigh", gamma, 140, bench.scale_size(240))
    second_moment = solve_stationary(run[0], NOISE / gamma)
    yield check_mean(float(np.trace(run[0].hessian @ second_moment) / 2.0), _average_excess(*run))


@state_law("regression: noise floor", GBMA, "K={0[0]}, gamma={0[1]}", ((5, 30), (5, 120), (10, 30)))
def _noise_floor(bench: Bench, case: tuple[int, float]) -> Iterator[Check]:
    """Compare the floor without fading with a closed form of the eigenvalues of H.

    It is (N / E K^2) sum_i lambda_i / (2 (1 - (1 - b lambda_i)^2)). The mean Hessian is prescribed,
    so the floor depends on the devices only by their number.
    """
    devices, gamma = case
    run = run_regression(bench, "awgn", gamma, 120, bench.scale_size(160), devices)
    values = np.geomspace(1.0, 1.0 / 3.0, FEATURES)
    law = NOISE / (gamma * devices**2) * (values / (1.0 - (1.0 - STEP * values) ** 2)).sum() / 2.0
    yield check_mean(law, _average_excess(*run))
