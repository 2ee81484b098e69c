"""Holds FedBN against its looped twin, and to the layers that it keeps: two trials of different
rates, five devices of unequal shares, a round of all and two of some, so that absent devices and
the state between rounds count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.rival_rounds import (
    CLASSES,
    INPUTS,
    MODEL,
    RATE,
    RATES,
    SERVER,
    WHO,
    Rounds,
    assert_close,
    compute_losses,
    draw_batches,
    get_shares,
    list_members,
    take_step,
)
from twins import rivals as twin
from twins.network import Array

from otafl.core.errors import UserError
from otafl.models.base import unflatten
from otafl.models.module_model import ModuleModel

pytestmark = pytest.mark.exact


def normed() -> ModuleModel:
    layers: list[Any] = [
        torch.nn.Linear(INPUTS, 4),
        torch.nn.LayerNorm(4),
        torch.nn.ReLU(),
        torch.nn.Linear(4, CLASSES),
    ]
    return ModuleModel(torch.nn.Sequential(*layers).double(), (INPUTS,), CLASSES)


@pytest.mark.twin
def test_fedbn() -> None:
    model = normed()
    ours = Rounds("fedbn", model, **RATES)
    names = list(model.shapes)
    kept = (2, 3)
    assert [names[i] for i in kept] == ["1.weight", "1.bias"] == list(model.norms)
    sent = {n: shape for n, shape in model.shapes.items() if n not in model.norms}

    def model_of(s: int) -> list[Array]:
        shared = unflatten(ours.server["model"], sent)
        norms = {"1.weight": np.ones(4), "1.bias": np.zeros(4)}  # as the module starts
        return [shared[n][s].numpy().copy() if n in shared else norms[n] for n in names]

    def norms_of(s: int, k: int) -> list[Array]:
        return [ours.devices[f"personal.{n}"][s, k].numpy().copy() for n in model.norms]

    w = [model_of(s) for s in range(2)]
    norms = [[norms_of(s, k) for k in range(5)] for s in range(2)]
    for t, who in enumerate(WHO):
        one = ours.run_round(t, who)
        assert {g.num_coordinates for g in one.payload} == {model.num_params - 8}
        for s in range(2):
            there = list_members(one, s)
            mean, new, loss = twin.fedbn(
                w[s],
                kept,
                [norms[s][k] for k in there],
                draw_batches(one, s),
                get_shares(one, s),
                RATE[s],
            )
            w[s] = take_step(w[s], mean, SERVER[s])
            for k, arrays_of in zip(there, new, strict=True):
                norms[s][k] = arrays_of
            assert_close(model_of(s), w[s])
            for k in range(5):
                assert_close(norms_of(s, k), norms[s][k])
            np.testing.assert_allclose(compute_losses(one, s), loss, rtol=1e-10)
    personal = ours.method.build_views(ours.server, ours.devices)["personal"].params
    for s in range(2):
        for k in range(5):
            for name, array in zip(model.norms, norms[s][k], strict=True):
                np.testing.assert_allclose(personal[name][5 * s + k], array, rtol=0, atol=1e-12)
            np.testing.assert_allclose(personal["0.weight"][5 * s + k], w[s][0], atol=1e-12)


def norms(*layers: torch.nn.Module) -> tuple[str, ...]:
    module = torch.nn.Sequential(
        torch.nn.Unflatten(1, (2, 3, 3)), *layers, torch.nn.Flatten(), torch.nn.Linear(18, CLASSES)
    )
    return ModuleModel(module, (18,), CLASSES).norms


def test_refuses_a_model_without_normalisation() -> None:
    with pytest.raises(UserError, match=r"'fedbn' .* the model has none; .* GroupNorm"):
        Rounds("fedbn", MODEL)
