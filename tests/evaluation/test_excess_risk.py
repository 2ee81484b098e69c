"""The excess risk is the objective over its minimum, for every way to be affine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contract.small import engine, run

from otafl.engine.engine import Engine
from otafl.evaluation.recorder import Recorder

pytestmark = pytest.mark.exact

DATA: dict[str, Any] = {"name": "ridge", "users": 4, "user_samples": 9, "features": 3}
KEYS: dict[str, Any] = {
    "data": DATA,
    "model": "linear",
    "transport": "ideal",
    "engine.dtype": "float64",
    "trials": 2,
    "training.eval_samples": None,
}


def record(keys: dict[str, Any], rounds: int = 3) -> tuple[dict[str, np.ndarray], Engine]:
    one = run(engine(keys), rounds)
    recorder = Recorder(one, 1, 2)
    recorder.take_record(rounds, 0.0)
    return recorder.record().variables, one


def compute_objective(one: Engine, trial: int, ridge: float, uniform: bool) -> float:
    """F(w) of the global model, by its definition."""
    data = one.parts.samples.training_data
    view = one.parts.algorithm.build_views(one.server, one.devices.get_all())["global"]
    losses, counts = [], []
    for cell in range(trial * 4, trial * 4 + 4):
        own = data.index[cell, : int(data.count[cell])]
        scores = view.predict_fn(view.params, data.x[own][None].expand(2, -1, -1))[trial]
        losses.append(float(0.5 * (scores - data.y[own]).square().sum(1).mean()))
        counts.append(len(own))
    share = None if uniform else counts
    weights = one.server["model"][trial, :3]
    penalty = 0.5 * ridge * float(weights.square().sum())
    return float(np.average(losses, weights=share)) + penalty


@pytest.mark.parametrize(
    ("bias", "ridge", "weights"), [(True, 0.3, "samples"), (False, 0.0, "uniform")]
)
def test_it_is_the_objective_over_its_minimum(bias: bool, ridge: float, weights: str) -> None:
    partition = {"name": "lognormal", "sigma": 1.0}
    keys = KEYS | {
        "data": DATA | {"partition": partition},
        "model": {"name": "linear", "bias": bias, "ridge": ridge},
        "training.weights": weights,
    }
    found, one = record(keys)
    for trial in range(2):
        objective = compute_objective(one, trial, ridge, weights == "uniform")
        excess, minimum = found["excess_risk"][0, trial, 0], found["minimum_risk"][0, trial]
        assert excess > 0
        np.testing.assert_allclose(excess + minimum, objective, rtol=1e-9)
