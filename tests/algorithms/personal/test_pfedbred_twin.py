"""Holds pFedBreD in all its strategies and variants, pFedMe and Per-FedAvg against looped twins:
two trials of different rates, five devices of unequal shares, one of them with fewer samples than a
minibatch, three rounds. And the first layer kept in the span of a minibatch against the plain form.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from support.marks import first_is_fast
from twins import prior as twin
from twins.setting import everyone, local_data, minibatch, mlp

from otafl.algorithms.personal.own_models import PerFedAvg
from otafl.algorithms.personal.pfedbred import PFedBreD, PFedMe
from otafl.core.contracts import LocalContext, Received, Tensors
from otafl.core.rng import Streams
from otafl.data.training_data import TrainingData
from otafl.models.base import Model
from otafl.models.span import SpanForm

WIDTHS = (6, 8, 5, 3)
SIZES = [[20, 10, 3, 30, 7], [9, 9, 25, 4, 40]]
RATES = [
    twin.Rates(15.0, 0.02, 0.03, 0.3, 0.2, 1.0, 0.05),
    twin.Rates(8.0, 0.05, 0.05, 0.1, 0.05, 1.7, 0.2),
]
ROUNDS, STEPS, PROX = 3, 3, 4
PRIORS = [
    {"strategy": "none"},
    {"strategy": "lg"},
    {"strategy": "meg", "coherence": True},
    {"strategy": "meg", "variant": "paper"},
    {"strategy": "mh"},
    {"strategy": "mh", "variant": "paper"},
    {"strategy": "mh", "variant": "c2"},
    {"strategy": "mh", "variant": "c2", "c2_two_batches": True},
]
OTHERS: list[tuple[Any, dict[str, Any]]] = [
    (PFedMe, {}),
    (PFedMe, {"implementation": "original"}),
    (PerFedAvg, {}),
]
ALL = [(PFedBreD, keys) for keys in PRIORS] + OTHERS
IDS = ["-".join([m.__name__, *(str(value) for value in keys.values())]) for m, keys in ALL]

pytestmark = pytest.mark.exact


def made(method: Any, keys: dict[str, Any], model: Model) -> Any:
    steps = {} if method is PerFedAvg else {"prox_steps": PROX}
    return method(method.Settings(**keys, **steps), model, 5)


def hyper_of(dtype: torch.dtype) -> Tensors:
    names = [field.name for field in fields(twin.Rates)]
    return {name: torch.tensor([getattr(r, name) for r in RATES], dtype=dtype) for name in names}


def run(ours: Any, data: TrainingData, streams: Streams, rounds: int = ROUNDS) -> list[Tensors]:
    """Return server and device blocks after each round, and the loss."""
    weight = torch.tensor(SIZES, dtype=streams.dtype)
    weight /= weight.sum(1, keepdim=True)
    cohort, hyper = everyone(weight), hyper_of(streams.dtype)
    server, start = ours.init(streams, hyper)
    devices = {n: b.expand(2, 5, *b.shape[2:]).flatten(0, 1).clone() for n, b in start.items()}
    out = [{**server, **devices}]
    for t in range(rounds):
        before = {name: block.clone() for name, block in server.items()}
        broadcast = ours.broadcast(server, cohort).expand_rows(cohort, 0, cohort.num_rows)
        context = LocalContext(cohort, hyper, streams, t, data.select_cohort(t, cohort))
        given = {name: block.clone() for name, block in devices.items()}
        devices, payload, loss = ours.run_local_update(broadcast, given, context)
        assert all(torch.equal(server[name], block) for name, block in before.items())
        assert devices.keys() == given.keys()
        (group,) = payload
        pointers = [b.data_ptr() for b in (*devices.values(), *group.tensors.values())]
        assert len(set(pointers)) == len(pointers)
        mean = torch.einsum("sk,sk...->s...", weight, group.tensors["model"].unflatten(0, (2, 5)))
        received = Received(({"model": mean},), (weight.new_ones(2),), None, None)
        server = ours.update_server(server, received, context)
        out.append({**server, **devices, "loss": loss})
    return out


@pytest.mark.twin
@pytest.mark.parametrize(("method", "keys"), ALL, ids=IDS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), first_is_fast([(torch.float64, 1e-12), (torch.float32, 2e-5)])
)
def test_equals_the_looped_twin(
    method: Any, keys: dict[str, Any], dtype: torch.dtype, tolerance: float
) -> None:
    streams = Streams([5, 5], [0, 1], dtype=dtype)
    data = local_data(SIZES, WIDTHS[0], WIDTHS[-1], streams, batch_size=4, steps=STEPS)
    model = mlp(WIDTHS)
    ours = made(method, keys, model)
    assert isinstance(ours.form, SpanForm)
    trace = run(ours, data, streams)

    net = twin.Net([(layer.inputs, layer.outputs) for layer in model.layers])
    weight = torch.tensor(SIZES, dtype=dtype)
    cohort = everyone(weight / weight.sum(1, keepdim=True))
    for s in range(2):
        w = trace[0]["model"][s].double().numpy()
        known = [twin.Device(w, w) for _ in range(5)]
        for t in range(ROUNDS):
            work = data.select_cohort(t, cohort)
            drawn = [[work.draw_batch(step, draw) for draw in range(2)] for step in range(STEPS)]
            local = []
            for k in range(5):
                row = 5 * s + k
                batches = [[minibatch(b, row) for b in draws] for draws in drawn]
                end, known[k] = device_round(method, keys, net, w, known[k], batches, RATES[s])
                local.append(end)
                after = personal(trace[t + 1], row)
                if after is not None:
                    np.testing.assert_allclose(after, known[k].theta, rtol=0, atol=tolerance)
            w = twin.server(w, local, [float(n) for n in SIZES[s]], RATES[s].server_learning_rate)
            np.testing.assert_allclose(trace[t + 1]["model"][s], w, rtol=0, atol=tolerance)


def device_round(
    method: Any,
    keys: dict[str, Any],
    net: twin.Net,
    w: twin.Array,
    device: twin.Device,
    batches: twin.Batches,
    rates: twin.Rates,
) -> tuple[twin.Array, twin.Device]:
    """Return the twin's local model, and its device (whose theta is the personal model)."""
    if method is PerFedAvg:
        return twin.per_fedavg(net.gradient, w, batches, rates), device
    if keys.get("implementation") == "original":
        end = twin.pfedme_original(net.gradient, w, batches, rates, PROX)
        return end, twin.Device(end, end)
    strategy, variant = keys.get("strategy", "none"), keys.get("variant", "code")
    two = keys.get("c2_two_batches", False)
    return twin.pfedbred(net.gradient, w, device, batches, rates, strategy, variant, two, PROX)


def personal(blocks: Tensors, row: int) -> twin.Array | None:
    names = [f"personal.{kind}{i}" for i in range(3) for kind in ("weight", "bias")]
    if names[0] not in blocks:
        return None
    return np.concatenate([blocks[name][row].double().numpy().ravel() for name in names])
