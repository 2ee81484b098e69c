r"""Check federated linear regression against its closed forms: fixed points, floors and rates.

`otafl.validation.quadratics` defines the objectives, and runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from otafl.validation.bench import Bench
from otafl.validation.checks import (
    Check,
    check_at_least,
    check_at_most,
    check_exact,
    check_mean,
    state_law,
)
from otafl.validation.quadratics import (
    EQUAL_HESSIANS,
    FEATURES,
    NOISE,
    STEP,
    QuadraticCourse,
    QuadraticProblem,
    compute_floor,
    run_course,
    solve_stationary,
)

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
