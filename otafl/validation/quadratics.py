r"""Run federated regression on quadratic objectives, for the laws of `regressions`.

K devices of equal weight have F_k(w) = mean |x^T w - y|^2 / 2 with Hessians H_k and gradients
g_k(w) = H_k (w - w*) + g_k about the common optimum w*, where the g_k add up to 0. H is the mean of
the H_k, and F(w) - F* = (w - w*)^T H (w - w*) / 2. All devices send full gradients.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from otafl.core.contracts import MODEL
from otafl.data.dataset import DataSet
from otafl.data.loading import load_cached
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.scenario import expand, load_scenario
from otafl.validation.bench import Bench

NOISE = 0.5
"""Noise variance of a received real."""
MEAN, VARIANCE = np.sqrt(np.pi) / 2.0, 1.0 - np.pi / 4.0
"""Mean and variance of the amplitude of Rayleigh fading."""
FEATURES, SAMPLES = 3, 20
STEP = 0.5


EQUAL_HESSIANS = {"name": f"{__name__}:draw_equal_hessians", "partition": "natural"}
"""Section `data` of devices with equal Hessians."""


def draw_equal_hessians(users: int = 10) -> DataSet:
    """Return samples of users that have the same inputs, and labels of their own."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((SAMPLES, FEATURES))
    x /= np.sqrt(np.linalg.eigvalsh(x.T @ x / SAMPLES).max())
    y = x @ rng.standard_normal((users, FEATURES, 1))
    owner = np.arange(users)
    return DataSet(
        np.tile(x, (users, 1)).astype(np.float32),
        y.reshape(-1, 1).astype(np.float32),
        np.tile(x[:1], (users, 1)).astype(np.float32),
        y[:, 0].astype(np.float32),
        owner=np.repeat(owner, SAMPLES),
        owner_test=owner,
    )


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


@dataclass(frozen=True)
class QuadraticCourse:
    """A problem and the models of a run.

    models: [R, S, P] after each round. personal: [S, K, P] at the end.
    """

    problem: QuadraticProblem
    models: np.ndarray
    personal: np.ndarray | None

    @functools.cached_property
    def excess(self) -> np.ndarray:
        """The excess risk [R, S]."""
        return self.problem.compute_excess(self.models)


def run_course(
    bench: Bench, rounds: int, trials: int, devices: int = 10, /, **sections: Any
) -> QuadraticCourse:
    """Run a linear regression of `devices` users, one device each, with full batches."""
    data = sections.pop("data", {})
    if "name" not in data:
        keys = {"users": devices, "user_samples": SAMPLES, "features": FEATURES, "condition": 3.0}
        data = {"name": "ridge", "user_test_samples": 1} | keys | data
    training = {"rounds": rounds, "batch_size": SAMPLES, "weights": "uniform"}
    training |= sections.pop("training", {})
    scenario = load_scenario(
        {
            "name": "regression",
            "data": data,
            "model": {"name": "linear", "bias": False},
            "transport": "ideal",
            "algorithm": {"name": "fedavg", "learning_rate": STEP},
            "devices": {"count": devices},
            "training": training,
            "trials": trials,
            "engine": {"dtype": "float64", "device": bench.device},
            **sections,
        }
    )
    points = expand(scenario)
    engine = Engine(assemble(points, range(trials)))
    models = []
    for t in range(rounds):
        engine.run_round(t)
        models.append(engine.server[MODEL].double().cpu().numpy())
    own = engine.devices.get_all().get("personal.weight0")
    personal = None if own is None else own.double().cpu().numpy()[..., 0]
    return QuadraticCourse(_read_problem(points[0].scenario.data), np.stack(models), personal)


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


def solve_stationary(
    problem: QuadraticProblem, noise: float, mean: float = MEAN, variance: float = VARIANCE
) -> np.ndarray:
    """Solve for the stationary second moment S of w - w* by vectorisation.

    S = A S A + (b / (mu K))^2 [v_h sum_k (H_k S H_k + g_k g_k^T) + (N / E) I], A = I - b H.

    noise: N / E of an increment over b^2.
    """
    count, size = problem.moments.shape
    contraction = np.eye(size) - STEP * problem.hessian
    scale = (STEP / (mean * count)) ** 2
    linear = np.kron(contraction, contraction)
    linear = linear + scale * variance * sum(np.kron(one, one) for one in problem.hessians)
    source = scale * (
        variance * problem.gradients.T @ problem.gradients + noise / STEP**2 * np.eye(size)
    )
    return np.linalg.solve(np.eye(size**2) - linear, source.ravel()).reshape(size, size)


def compute_floor(problem: QuadraticProblem, second_moment: np.ndarray) -> float:
    """Compute the mean excess risk trace(H S) / 2."""
    return float(np.trace(problem.hessian @ second_moment) / 2.0)
