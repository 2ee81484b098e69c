"""Laws of federated linear regression: fixed points, floors and rates.

K devices of equal weight have F_k(w) = mean |x^T w - y|^2 / 2 with Hessians H_k and gradients
g_k(w) = H_k (w - w*) + g_k about the common optimum w*, where the g_k add up to 0. H is the mean of
the H_k, and F(w) - F* = (w - w*)^T H (w - w*) / 2. All devices send full gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
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
from otafl.validation.checks import (
    Check,
    check_at_least,
    check_at_most,
    check_exact,
    check_mean,
    state_law,
)

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


GBMA = "Sery, Cohen 2020, equations 6 to 9, stationary second moment"
LOCAL = "Charles, Konecny 2021; Karimireddy et al. 2020; Li et al. 2021; Dinh et al. 2020"


def _link(channel: str, gamma: float) -> dict[str, Any]:
    return {
        "channel": channel,
        "power": {"name": "gbma", "gamma": gamma, "gain_target": "amplitude"},
        "transport": "over_the_air",
    }


def _average(course: QuadraticCourse, settled: int) -> np.ndarray:
    """Return the time average of the excess risk of each trial, [S]."""
    return np.asarray(course.excess[settled:].mean(0))


@state_law("regression: stationary risk", GBMA, "gamma={}", (30.0, 3000.0))
def _stationary_risk(bench: Bench, gamma: float) -> Iterator[Check]:
    """Compare the time average of the excess risk with noise and fading with trace(H S) / 2."""
    course = run_course(bench, 140, bench.scale_size(240), **_link("rayleigh", gamma))
    law = compute_floor(course.problem, solve_stationary(course.problem, NOISE / gamma))
    yield check_mean(law, _average(course, 40))


@state_law("regression: noise floor", GBMA, "K={0[0]}, gamma={0[1]}", ((5, 30), (5, 120), (10, 30)))
def _noise_floor(bench: Bench, case: tuple[int, float]) -> Iterator[Check]:
    """Compare the floor without fading with a closed form of the eigenvalues of H.

    It is (N / E K^2) sum_i lambda_i / (2 (1 - (1 - b lambda_i)^2)). The mean Hessian is prescribed,
    so the floor depends on the devices only by their number.
    """
    devices, gamma = case
    course = run_course(bench, 120, bench.scale_size(160), devices, **_link("awgn", gamma))
    values = np.geomspace(1.0, 1.0 / 3.0, FEATURES)
    law = NOISE / (gamma * devices**2) * (values / (1.0 - (1.0 - STEP * values) ** 2)).sum() / 2.0
    yield check_mean(law, _average(course, 40))


@state_law("regression: contraction", "gradient descent: 1 - b lambda_i a round")
def _contraction(bench: Bench) -> Iterator[Check]:
    """Compare the distance from the optimum in each eigen-direction from round to round."""
    course = run_course(bench, 4, 1)
    values, turn = np.linalg.eigh(course.problem.hessian)
    away = (course.models[:, 0] - course.problem.optimum) @ turn
    for index, value in enumerate(values):
        for before, after in zip(away[:-1, index], away[1:, index], strict=True):
            yield check_exact(1.0 - STEP * value, after / before, 1e-5, f"direction {index}")


@state_law("regression: local steps", LOCAL)
def _local_steps(bench: Bench) -> Iterator[Check]:
    """Compare the fixed points of FedAvg and SCAFFOLD with five local steps.

    FedAvg's is (sum_k P_k)^-1 sum_k P_k w_k*, P_k = I - (I - b H_k)^5, and not w*, unless there is
    one step or all H_k are equal; SCAFFOLD's is w*, as all devices take part at server step 1.
    """
    step, training = 0.2, {"local_steps": 5}
    fedavg = {"name": "fedavg", "learning_rate": step}
    course = run_course(bench, 100, 1, algorithm=fedavg, training=training)
    problem = course.problem
    found = _solve_local_point(problem, step, 5)
    apart = float(np.linalg.norm(found - problem.optimum))
    yield _compare(found, course.models[-1, 0], "FedAvg, 5 steps")
    yield check_at_least(1e-3, apart, "distance of its fixed point from w*")
    one = run_course(bench, 250, 1, algorithm=fedavg)
    yield _compare(problem.optimum, one.models[-1, 0], "FedAvg, 1 step")
    alike = run_course(
        bench, 60, 1, data=EQUAL_HESSIANS, algorithm=fedavg, loss="squared", training=training
    )
    yield check_at_most(1e-9, _measure_spread(alike.problem), 0.0, "distance of equal Hessians")
    yield check_at_least(1e-2, float(np.linalg.norm(alike.problem.gradients)), "unequal optima")
    yield _compare(alike.problem.optimum, alike.models[-1, 0], "FedAvg, 5 steps, equal Hessians")
    scaffold = {"name": "scaffold", "learning_rate": step}
    corrected = run_course(bench, 250, 1, algorithm=scaffold, training=training)
    yield _compare(problem.optimum, corrected.models[-1, 0], "SCAFFOLD, 5 steps")


def _measure_spread(problem: QuadraticProblem) -> float:
    return float(np.abs(problem.hessians - problem.hessian).max())


def _solve_local_point(problem: QuadraticProblem, step: float, steps: int) -> np.ndarray:
    identity = np.eye(problem.hessian.shape[0])
    p = np.stack(
        [
            identity - np.linalg.matrix_power(identity - step * one, steps)
            for one in problem.hessians
        ]
    )
    own = np.linalg.solve(problem.hessians, problem.moments[..., None])[..., 0]
    return np.asarray(np.linalg.solve(p.sum(0), np.einsum("kpq,kq->p", p, own)))


def _compare(law: np.ndarray, found: np.ndarray, case: str) -> Check:
    """Check a vector by its distance, relative to the law's norm."""
    return check_at_most(1e-4, float(np.linalg.norm(found - law) / np.linalg.norm(law)), 0.0, case)
