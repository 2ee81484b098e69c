"""Holds pFedBreD in all its strategies and variants, pFedMe and Per-FedAvg against looped twins:
two trials of different rates, five devices of unequal shares, one of them with fewer samples than a
minibatch, a round of all and two of some.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from support.marks import first_is_fast
from support.rival_rounds import (
    CLASSES,
    INPUTS,
    MODEL,
    SIZES,
    WHO,
    Rounds,
    draw_batches,
    list_members,
    read_device,
)
from twins import prior as twin
from twins.exchange import loss_and_slope
from twins.network import Minibatch

from otafl.models.span import SpanForm

RATES = [
    twin.Rates(15.0, 0.02, 0.03, 0.3, 0.2, 1.0, 0.05),
    twin.Rates(8.0, 0.05, 0.05, 0.1, 0.05, 1.7, 0.2),
]
PROX = 4
WIDTHS = (INPUTS, 8, 5, CLASSES)
PRIORS = [
    {"strategy": "none"},
    {"strategy": "lg"},
    {"strategy": "meg", "coherence": True},
    {"strategy": "meg", "variant": "paper"},
    {"strategy": "mh"},
    {"strategy": "mh", "variant": "paper"},
    {"strategy": "mh", "variant": "c2"},
]
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("pfedme", {}),
    ("pfedme", {"implementation": "original"}),
    ("per_fedavg", {}),
]
ALL = [("pfedbred", keys) for keys in PRIORS] + OTHERS
IDS = ["-".join([name, *(str(value) for value in keys.values())]) for name, keys in ALL]

pytestmark = pytest.mark.exact


@pytest.mark.twin
@pytest.mark.parametrize(("method", "keys"), ALL, ids=IDS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), first_is_fast([(torch.float64, 1e-12), (torch.float32, 2e-5)])
)
def test_equals_the_looped_twin(
    method: str, keys: dict[str, Any], dtype: torch.dtype, tolerance: float
) -> None:
    rates = {name: [asdict(one)[name] for one in RATES] for name in asdict(RATES[0])}
    steps = {} if method == "per_fedavg" else {"prox_steps": PROX}
    ours = Rounds(method, MODEL, keys | steps, dtype=dtype, **rates)
    assert isinstance(ours.method.form, SpanForm)
    w = [flat.double().numpy() for flat in ours.server["model"]]
    known = [[twin.Device(flat, flat)] * 5 for flat in w]
    for t, who in enumerate(WHO):
        one = ours.run_round(t, who)
        for s in range(2):
            members, local = list_members(one, s), []
            draws = [draw_batches(one, s, draw) for draw in (0, 1)]
            for k, *both in zip(members, *draws, strict=True):
                batches = [list(pair) for pair in zip(*both, strict=True)]
                end, known[s][k] = device_round(method, keys, w[s], known[s][k], batches, RATES[s])
                local.append(end)
            for k in range(5) if "personal.weight0" in ours.devices else ():
                found = side_by_side(read_device(ours, s, k))
                np.testing.assert_allclose(found, known[s][k].theta, rtol=0, atol=tolerance)
            share, rate = [float(SIZES[s][k]) for k in members], RATES[s].server_learning_rate
            w[s] = twin.server(w[s], local, share, rate)
            np.testing.assert_allclose(ours.server["model"][s], w[s], rtol=0, atol=tolerance)


def device_round(
    method: str,
    keys: dict[str, Any],
    w: twin.Array,
    device: twin.Device,
    batches: twin.Batches,
    rates: twin.Rates,
) -> tuple[twin.Array, twin.Device]:
    """Return the twin's local model, and its device (whose theta is the personal model)."""

    def gradient(vector: twin.Array, batch: Minibatch) -> twin.Array:
        return loss_and_slope(vector, WIDTHS, batch)[1]

    if method == "per_fedavg":
        return twin.per_fedavg(gradient, w, batches, rates), device
    if keys.get("implementation") == "original":
        end = twin.pfedme_original(gradient, w, batches, rates, PROX)
        return end, twin.Device(end, end)
    strategy, variant = keys.get("strategy", "none"), keys.get("variant", "code")
    return twin.pfedbred(gradient, w, device, batches, rates, strategy, variant, PROX)


def side_by_side(arrays: list[twin.Array]) -> twin.Array:
    """Weights and biases, layer by layer."""
    layers = zip(arrays[:3], arrays[3:], strict=True)
    return np.concatenate([part.ravel() for pair in layers for part in pair])
