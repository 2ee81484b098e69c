r"""Check federated linear regression against its closed forms: fixed points, floors and rates.

`otafl.laws.quadratics` defines the objectives, and runs them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from otafl.laws.bench import Bench
from otafl.laws.checks import (
    Check,
    check_at_least,
    check_at_most,
    check_exact,
    check_mean,
    state_law,
)
from otafl.laws.quadratics import (
    EQUAL_HESSIANS,
    FEATURES,
    MEAN,
    NOISE,
    STEP,
    VARIANCE,
    Course,
    Problem,
    compute_floor,
    run_course,
    solve_stationary,
)

GBMA = "Sery, Cohen 2020, equations 6 to 9, stationary second moment"
LOCAL = "Charles, Konecny 2021; Karimireddy et al. 2020; Li et al. 2021; Dinh et al. 2020"
COTAF = "Sery, Shlezinger, Cohen, Eldar 2021, theorem 1: O(1/t)"
WEI_SHEN = "Wei, Shen 2022, arXiv:2101.02198: whole models need an SNR of t^2"


def _link(channel: str, gamma: float) -> dict[str, Any]:
    return {
        "channel": channel,
        "power": {"name": "gbma", "gamma": gamma, "gain_target": "amplitude"},
        "transport": "over_the_air",
    }


def _average(course: Course, settled: int) -> np.ndarray:
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


@state_law("regression: fading floor", GBMA, "K={}", (5, 20))
def _fading_floor(bench: Bench, devices: int) -> Iterator[Check]:
    """Compare the floor without noise with its leading order, 1/K.

    The leading order of S is (b / mu)^2 v_h mean_k |g_k|^2 / K in each direction. The floor is 0 if
    the devices share the optimum.
    """
    course = run_course(bench, 140, bench.scale_size(160), devices, **_link("rayleigh", 1e9))
    problem = course.problem
    values, turn = np.linalg.eigh(problem.hessian)
    spread = ((problem.gradients @ turn) ** 2).mean(0)
    contracted = 1.0 - (1.0 - STEP * values) ** 2
    leading = (STEP / MEAN) ** 2 * VARIANCE / devices * (values * spread / contracted).sum() / 2.0
    exact = compute_floor(problem, solve_stationary(problem, NOISE / 1e9))
    yield check_mean(float(leading), _average(course, 40), bias=abs(exact - float(leading)))
    yield Check(
        1.0, exact / float(leading), 1.0, 1.0 + 2.0 / devices, "order after the leading one"
    )
    shared = {"optimum_spread": 0.0, "label_noise": 0.0}
    link = _link("rayleigh", 1e30)
    alike = run_course(bench, 100, 4, devices, data=shared, **link)
    yield check_at_most(1e-12, float(alike.excess[-1].max()), 0.0, "devices share the optimum")


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


def _measure_spread(problem: Problem) -> float:
    return float(np.abs(problem.hessians - problem.hessian).max())


def _solve_local_point(problem: Problem, step: float, steps: int) -> np.ndarray:
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


@state_law("regression: personal models", LOCAL)
def _personal_models(bench: Bench) -> Iterator[Check]:
    """Compare the personal models of Ditto and pFedMe with linear solves.

    Ditto's v_k = (H_k + lambda)^-1 (c_k + lambda w) about FedAvg's fixed point w, for any number of
    local steps once it is stationary. pFedMe with an exact inner solution moves its local model by
    A_k = I - b lambda (I - lambda (H_k + lambda)^-1) in each of E steps; w is the fixed point of
    the mean of E of them.
    """
    weight, step, steps = 1.0, 0.2, 3
    ditto = {"name": "ditto", "learning_rate": step, "penalty": weight}
    ditto["personal_learning_rate"] = 0.3
    course = run_course(bench, 150, 1, algorithm=ditto, training={"local_steps": steps})
    problem, identity = course.problem, np.eye(FEATURES)
    w = _solve_local_point(problem, step, steps)
    inverse = np.linalg.inv(problem.hessians + weight * identity)
    law = np.einsum("kpq,kq->kp", inverse, problem.moments + weight * w)
    assert course.personal is not None
    yield _compare(law.ravel(), course.personal[0].ravel(), "Ditto")
    pfedme: dict[str, Any] = {"name": "pfedme", "learning_rate": step, "penalty": weight}
    pfedme |= {"personal_learning_rate": 0.3, "prox_steps": 40}
    course = run_course(bench, 100, 1, algorithm=pfedme, training={"local_steps": steps})
    moved = identity - step * weight * (identity - weight * inverse)
    shift = step * weight * np.einsum("kpq,kq->kp", inverse, problem.moments)
    powers = [np.stack([np.linalg.matrix_power(one, j) for one in moved]) for j in range(steps + 1)]
    total = sum(np.einsum("kpq,kq->p", powers[j], shift) for j in range(steps)) / len(shift)
    point = np.linalg.solve(identity - powers[steps].mean(0), total)
    yield _compare(point, course.models[-1, 0], "pFedMe")


FALLING: dict[str, Any] = {"name": "fedavg", "learning_rate": 1.0, "decay": 0.2}
"""Steps 1 / (1 + t / 5), which fall slowly enough for O(1/t)."""
ROUNDS, TRIALS = 240, 160
ORDER = 0.1
"""Deviation of the logarithm of a mean risk's growth from the mean of the trials' logarithms."""


def _average_windows(risk: np.ndarray) -> np.ndarray:
    """Compute the logarithm of the risk about round 200 over that about round 50.

    risk: [R, ...].
    """
    early, late = (risk[4 * t : 6 * t].mean(0) for t in (ROUNDS // 24, ROUNDS // 6))
    return np.asarray(np.log(late / early))


def _check_growth(course: Course, power: float, first: int, case: str) -> Check:
    r"""Check the growth of the risk with that of the second moment, without the first error.

    In each eigen-direction s(t + 1) = (1 - b_t lambda)^2 s(t) + q_t, where the noise variance q_t
    is proportional to (t + first)^power. It is log 0.27 at a power of -2: the risk falls as 1/t.
    """
    values = np.linalg.eigvalsh(course.problem.hessian)
    moment, risk = np.zeros_like(values), []
    for t in range(ROUNDS):
        step = FALLING["learning_rate"] / (1.0 + FALLING["decay"] * t)
        moment = (1.0 - step * values) ** 2 * moment + float(t + first) ** power
        risk.append(values @ moment)
    law = float(_average_windows(np.array(risk)))
    return check_mean(law, _average_windows(course.excess), case, bias=ORDER)


def _precode(snr_db: float = 10.0, growth: float = 0.0) -> dict[str, Any]:
    return {
        "channel": {"name": "awgn", "snr_db": snr_db, "snr_growth": growth},
        "power": {"name": "cotaf", "h_min": 1.0},
        "transport": "over_the_air",
    }


@functools.cache
def _run_precoded(bench: Bench) -> Course:
    """Run increments with precoding at a constant SNR, which two laws compare with."""
    trials = bench.scale_size(TRIALS)
    return run_course(bench, ROUNDS, trials, algorithm=FALLING, **_precode())


@state_law("regression: precoding", COTAF)
def _precoding(bench: Bench) -> Iterator[Check]:
    """Compare the growth of the risk over four times the rounds, with and without precoding.

    With a precoding that follows the updates' power, the noise falls as the square of the step, and
    the risk as 1/t. Without, the noise stays, and the risk grows.
    """
    trials = bench.scale_size(TRIALS)
    yield _check_growth(_run_precoded(bench), -2.0, 5, "with precoding")
    plain = run_course(bench, ROUNDS, trials, algorithm=FALLING, **_link("awgn", 100.0))
    yield _check_growth(plain, 0.0, 1, "without")


@state_law("regression: whole models", WEI_SHEN)
def _whole_models(bench: Bench) -> Iterator[Check]:
    """Compare increments with whole models, which devices and server send.

    Increments need a constant SNR, and whole models one that grows as t^2.
    """
    trials, models = bench.scale_size(TRIALS), FALLING | {"sends": "model"}
    yield _check_growth(_run_precoded(bench), -2.0, 5, "increments")
    for growth in (0.0, 2.0):
        down = {"name": "analog", "snr_db": 20.0, "snr_growth": growth}
        link = _precode(20.0, growth)
        course = run_course(bench, ROUNDS, trials, algorithm=models, downlink=down, **link)
        yield _check_growth(course, -growth, 1, f"whole models, growth {growth:g}")


GRADIENT = "otafl.losses.squared:Squared.compute_gradient_"
