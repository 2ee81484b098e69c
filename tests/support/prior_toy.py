"""Gives the toy of the proximal methods: softmax regression without bias, W [classes, features] =
0, X = [[1, 0], [0, 2]], y = [0, 1], the full batch as every minibatch, two local steps of one
device's first round. Each W is (a, -b, -a, b) by rows.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from twins.setting import everyone

from otafl.algorithms.baselines.fedavg import FedAvg
from otafl.algorithms.personal.own_models import PerFedAvg
from otafl.algorithms.personal.pfedbred import PFedBreD, PFedMe
from otafl.core.contracts import Batch, Broadcast, Hyper, LocalContext, Workload
from otafl.core.rng import Streams
from otafl.models.module_model import ModuleModel

RATES = {
    "penalty": 15.0,
    "personal_learning_rate": 0.01,
    "learning_rate": 0.01,
    "eta": 0.05,
    "eta_alpha": 0.01,
    "weight_decay": 1e-3,
    "decay": 0.0,
    "server_learning_rate": 1.0,
}
COHORT = everyone(torch.ones(1, 1, dtype=torch.float64))
STREAMS = Streams([0], [0], dtype=torch.float64)


class Whole:
    """Is local work whose every minibatch is the toy's two samples."""

    def __init__(self, steps: int) -> None:
        self.cohort, self.round, self.steps = COHORT, 0, steps

    def draw_batch(self, step: int, draw_index: int = 0) -> Batch:
        x = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]], dtype=torch.float64)
        return Batch(x, torch.tensor([[0, 1]]), None)


def make_context(hyper: Hyper, steps: int) -> LocalContext:
    return LocalContext(COHORT, hyper, STREAMS, 0, Whole(steps))


def run_toy(method: Any, steps: int = 2, **changes: float) -> tuple[list[float], list[float]]:
    """Return (a, b) of the local model and of the personal one after the toy's round."""
    hyper = {n: torch.tensor([v], dtype=torch.float64) for n, v in (RATES | changes).items()}
    _, start = method.init(STREAMS, hyper)
    devices = {name: torch.zeros_like(block)[:, 0] for name, block in start.items()}
    broadcast = Broadcast({"model": torch.zeros(1, 4, dtype=torch.float64)}, per_device=True)
    state, (group,), loss = method.run_local_update(broadcast, devices, make_context(hyper, steps))
    assert 0.6 < float(loss) <= 0.6931471805599454
    personal = state.get("personal.weight", group.tensors["model"])
    return to_pair(group.tensors["model"]), to_pair(personal)


def to_pair(w: Tensor) -> list[float]:
    a, minus_b, minus_a, b = w.flatten().tolist()
    assert a == pytest.approx(-minus_a, abs=1e-9)
    assert b == pytest.approx(-minus_b, abs=1e-9)
    return [a, b]


@functools.cache
def make_model() -> ModuleModel:
    """Return the toy's model, which holds no state."""
    return ModuleModel(nn.Linear(2, 2, bias=False).double(), (2,), 2)


def make_prior(strategy: str, variant: str = "code", **keys: Any) -> PFedBreD:
    config = PFedBreD.Settings.model_validate({"strategy": strategy, "variant": variant, **keys})
    return PFedBreD(config, make_model(), 1)


def make_pfedme(**keys: Any) -> PFedMe:
    return PFedMe(PFedMe.Settings.model_validate(keys), make_model(), 1)


def make_per_fedavg(**keys: Any) -> PerFedAvg:
    return PerFedAvg(PerFedAvg.Settings.model_validate(keys), make_model(), 1)


def make_fedavg() -> FedAvg:
    return FedAvg(FedAvg.Settings(), make_model(), 1)


def solve_exactly(method: Any, penalty: float, steps: int = 2) -> tuple[list[float], list[float]]:
    """Run the toy with a solver that converges: curvature at most penalty + 2."""
    return run_toy(method, steps, penalty=penalty, personal_learning_rate=1 / (penalty + 2))


def assert_counts_gradients(method: Any, count: int) -> None:
    """Hold the gradients of a step to the count, as told and as called for."""
    assert method.constants == {"gradients_per_step": float(count)}
    load, model = Workload(4, 10, np.array([40.0])), method.model
    of_more_samples = method.count_flops(replace(load, batch_size=20)) - method.count_flops(load)
    assert of_more_samples == pytest.approx(count * model.count_training_flops(40.0))
    calls = []
    gradients = method.model.compute_gradients
    method.model.compute_gradients = lambda *given: (calls.append(1), gradients(*given))[1]
    run_toy(method, steps=2)
    assert len(calls) == 2 * count
