"""Holds pFedBreD to numbers by hand, to its limits, and to what it measures and refuses.

Gives the toy of the proximal methods: softmax regression without bias, W [classes, features] =
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
from support.rival_rounds import MODEL, Rounds
from torch import Tensor, nn
from twins.setting import everyone

from otafl.algorithms.baselines.fedavg import FedAvg
from otafl.algorithms.personal.own_models import PerFedAvg
from otafl.algorithms.personal.pfedbred import PFedBreD, PFedMe
from otafl.core.contracts import Batch, Broadcast, Hyper, LocalContext, Workload
from otafl.core.rng import Streams
from otafl.models.module_model import ModuleModel

pytestmark = pytest.mark.exact

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


ROWS: list[tuple[Any, dict[str, float], list[float], list[float] | None]] = [
    (make_prior("none"), {}, [0.00276586, 0.00543942], [0.01059705, 0.02080900]),
    (make_prior("lg"), {}, [0.00275895, 0.00538522], [0.01306714, 0.02557509]),
    (make_prior("meg"), {}, [0.00273497, 0.00537744], [0.01085240, 0.02130483]),
    (make_prior("meg", "paper"), {}, [0.00276522, 0.00543447], [0.01105409, 0.02168502]),
    (make_prior("mh"), {}, [0.00769420, 0.01510512], [0.01584929, 0.03087647]),
    (make_prior("mh"), {"eta": 0.0}, [0.00773337, 0.01518337], None),
    (make_prior("mh", "paper"), {}, [0.00275814, 0.00537896], [0.01364688, 0.02668330]),
    (make_prior("mh", "c2"), {}, [0.00275816, 0.00537951], [0.01364040, 0.02663332]),
    (make_fedavg(), {}, [0.00499375, 0.00995000], None),
    (make_per_fedavg(), {}, [0.00498128, 0.00985101], None),
    (make_pfedme(), {}, [0.00276586, 0.00543942], [0.01059705, 0.02080900]),
    (make_pfedme(), {"steps": 1}, [0.00138389, 0.00272714], [0.00922593, 0.01818096]),
    (make_pfedme(), {"penalty": 30.0}, [0.00413576, 0.00813056], None),
    (make_pfedme(prox_steps=400), {}, [0.00491200, 0.00933200], [0.01881219, 0.03564866]),
    (make_pfedme(implementation="original"), {}, *([[0.00328006, 0.00640874]] * 2)),
    (
        make_pfedme(implementation="original"),
        {"weight_decay": 0.0},
        *([[0.00328017, 0.00640894]] * 2),
    ),
]


@pytest.mark.parametrize(("method", "changes", "local", "personal"), ROWS)
def test_toy_numbers(
    method: Any, changes: dict[str, Any], local: list[float], personal: list[float] | None
) -> None:
    w, theta = run_toy(method, **changes)
    assert w == pytest.approx(local, abs=6e-9)
    if personal is not None:
        assert theta == pytest.approx(personal, abs=6e-9)


def test_coherence_keeps_the_last_envelope_gradient() -> None:
    """lambda (mu - theta) of the last local step is the step of w there, over alpha_m."""
    moved = []
    for steps in (2, 3):
        ours = Rounds("pfedbred", MODEL, {"strategy": "lg", "coherence": True}, steps)
        moved.append(ours.run_round(0).payload[0].tensors["model"])
    update = ours.devices["update"]
    torch.testing.assert_close(moved[0] - moved[1], 0.01 * update.flatten(0, 1))
    measured = ours.method.compute_metrics({}, ours.devices)
    assert measured.keys() == {"update_coherence", "update_coherence_log"}
    assert ((measured["update_coherence"] > 0) & (measured["update_coherence"] < 1)).all()
    assert make_prior("lg").compute_metrics({}, {}) == {}


COUNTS = [
    (make_prior("none"), 5),
    (make_prior("meg"), 5),
    (make_prior("lg"), 6),
    (make_prior("mh", "paper"), 6),
    (make_prior("mh"), 7),
    (make_prior("mh", "c2"), 7),
    (make_pfedme(), 5),
    (make_per_fedavg(), 2),
]


@pytest.mark.parametrize(("method", "count"), COUNTS)
def test_gradients_of_a_step(method: Any, count: int) -> None:
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


REFUSED = [
    ({"penalty": 200.0}, "below 2"),
    ({"variant": "c2", "strategy": "lg"}, "strategy: mh"),
]


@pytest.mark.parametrize(("keys", "told"), REFUSED)
def test_refuses(keys: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        PFedBreD.Settings.model_validate(keys)
    with pytest.raises(ValueError, match="below 2"):
        PFedMe.Settings(penalty=300.0)
    PFedBreD.Settings(penalty=150.0)  # overshoots, and converges
