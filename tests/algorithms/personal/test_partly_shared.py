"""Holds FedBN and FedRep against their looped twins, and to the layers that devices keep.

Two trials of different rates, five devices of unequal shares, a round of all and two of some, so
that absent devices and the state between rounds count.
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
    OWN,
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
    read_device,
    take_step,
    to_arrays,
)
from twins import rivals as twin
from twins.network import Array

from otafl.core.errors import UserError
from otafl.models.base import unflatten
from otafl.models.module_model import ModuleModel
from otafl.models.softmax_regression import SoftmaxRegression

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


def test_refuses_a_model_without_normalisation() -> None:
    with pytest.raises(UserError, match=r"'fedbn' .* the model has none; .* GroupNorm"):
        Rounds("fedbn", MODEL)


@pytest.mark.twin
@pytest.mark.parametrize("factor", [1, 2])
def test_fedrep(factor: int) -> None:
    ours = Rounds("fedrep", MODEL, {"head_factor": factor}, personal_learning_rate=OWN, **RATES)
    body_at, head_at = (0, 1, 3, 4), (2, 5)
    shapes = {n: shape for n, shape in MODEL.shapes.items() if n not in ("weight2", "bias2")}
    assert ours.server["model"].shape == (2, sum(np.prod(shape) for shape in shapes.values()))

    def body_of(s: int) -> dict[int, Array]:
        params = to_arrays(MODEL, unflatten(ours.server["model"], shapes), s)
        return dict(zip(body_at, params, strict=True))

    body = [body_of(s) for s in range(2)]
    heads = [
        [dict(zip(head_at, read_device(ours, s, k), strict=True)) for k in range(5)] for s in (0, 1)
    ]
    for t, who in enumerate(WHO):
        one = ours.run_round(t, who)
        for s in range(2):
            there = list_members(one, s)
            for_heads = [draw_batches(one, s, draw) for draw in range(1, factor + 1)]
            mean, new, loss = twin.fedrep(
                body[s],
                [heads[s][k] for k in there],
                [[b for part in parts for b in part] for parts in zip(*for_heads, strict=True)],
                draw_batches(one, s),
                get_shares(one, s),
                RATE[s],
                OWN[s],
            )
            moved = take_step(list(body[s].values()), list(mean.values()), SERVER[s])
            body[s] = dict(zip(body_at, moved, strict=True))
            for k, head in zip(there, new, strict=True):
                heads[s][k] = head
            assert_close(list(body_of(s).values()), list(body[s].values()))
            for k in range(5):
                assert_close(read_device(ours, s, k), list(heads[s][k].values()))
            np.testing.assert_allclose(compute_losses(one, s), loss, rtol=1e-12)
    personal = ours.method.build_views(ours.server, ours.devices)["personal"].params
    for s in range(2):
        for k in range(5):
            both = body[s] | heads[s][k]
            assert_close(to_arrays(MODEL, personal, 5 * s + k), [both[i] for i in range(6)])


def test_refuses_a_single_layer() -> None:
    regression = SoftmaxRegression(SoftmaxRegression.Settings(), (INPUTS,), CLASSES)
    with pytest.raises(UserError, match=r"'fedrep' .* has one layer; use mlp, cnn"):
        Rounds("fedrep", regression)
