"""Holds pFedMe, Per-FedAvg and pFedBreD's strategies against users and a server written as the
published programs are: parameters, personal models and memories after every round, to 1e-12.

Two trials of five devices of unequal shares, a round of all and two of some.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from support.marks import every_other_is_fast
from support.rival_rounds import (
    CLASSES,
    INPUTS,
    MODEL,
    SIZES,
    WHO,
    Rounds,
    draw_batches,
    list_members,
)
from twins import personal_users as users
from twins.network import Minibatch

from otafl.core.contracts import Tensors
from otafl.models.base import Model, unflatten
from otafl.models.softmax_regression import SoftmaxRegression

pytestmark = [pytest.mark.exact, pytest.mark.twin]


@dataclass(frozen=True)
class Rates:
    penalty: float = 12.0
    alpha: float = 0.03
    alpha_m: float = 0.02
    eta: float = 0.3
    eta_alpha: float = 0.2
    beta: float = 1.6
    prox_steps: int = 4


RATES = Rates()
SHARED = {
    "learning_rate": RATES.alpha_m,
    "personal_learning_rate": RATES.alpha,
    "server_learning_rate": RATES.beta,
}
PROX = {"penalty": RATES.penalty, "prox_steps": RATES.prox_steps}
BRED = PROX | {"name": "pfedbred", "eta": RATES.eta, "eta_alpha": RATES.eta_alpha}
METHODS: dict[str, dict[str, Any]] = {
    "pfedme": PROX | {"name": "pfedme"},
    "per_fedavg": {"name": "per_fedavg"},
    "lg": BRED | {"strategy": "lg"},
    "meg": BRED | {"strategy": "meg"},
    "meg paper": BRED | {"strategy": "meg", "variant": "paper"},
    "mh": BRED | {"strategy": "mh"},
    "mh paper": BRED | {"strategy": "mh", "variant": "paper"},
    "c2": BRED | {"strategy": "mh", "variant": "c2"},
}
MODELS: dict[str, Model] = {
    "mlp": MODEL,
    "softmax_regression": SoftmaxRegression(
        SoftmaxRegression.Settings(start="uniform"), (INPUTS,), CLASSES
    ),
}
INNER_FIRST = {"per_fedavg": (1, 0), "mh": (1, 0)}
"""Draws of a local step: that of the gradient inside the prior or the meta-step, then the others';
one for all other methods."""


def to_sample(batch: Minibatch) -> users.Sample:
    return users.Sample(*map(torch.from_numpy, (batch.x, batch.y, batch.weight)))


def assert_near(blocks: Tensors, place: Any, prefix: str, theirs: users.Tensors) -> None:
    names = [name for name in blocks if name.startswith(prefix)]
    for name, expected in zip(names, theirs, strict=True):
        torch.testing.assert_close(blocks[name][place], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("method", "model"), every_other_is_fast(METHODS, MODELS))
def test_rounds_are_those_of_the_published_programs(method: str, model: str) -> None:
    ours = Rounds(METHODS[method]["name"], MODELS[model], METHODS[method] | SHARED)
    shapes = MODELS[model].shapes
    start = unflatten(ours.server["model"], shapes)
    w = [[block[s].clone() for block in start.values()] for s in range(2)]
    people = [[users.User(w[s], users.perceptron) for _ in range(5)] for s in range(2)]
    for t, who in enumerate(WHO):
        one = ours.run_round(t, who)
        for s in range(2):
            draws = [draw_batches(one, s, draw) for draw in INNER_FIRST.get(method, (0,))]
            members, local = list_members(one, s), []
            for k, *each in zip(members, *draws, strict=True):
                steps = [list(map(to_sample, step)) for step in zip(*each, strict=True)]
                local.append(people[s][k].train(w[s], steps, method, RATES))
            before = w[s]
            w[s] = users.aggregated(before, local, [SIZES[s][k] for k in members], RATES.beta)
            assert float((w[s][0] - before[0]).abs().max()) > 1e-4
            assert_near(unflatten(ours.server["model"], shapes), s, "", w[s])
            kept = {name.partition(".")[0] for name in ours.devices}
            for k in range(5):
                if "personal" in kept:
                    assert_near(ours.devices, (s, k), "personal.", people[s][k].theta)
                if "last" in kept:
                    assert_near(ours.devices, (s, k), "last.", people[s][k].last)
