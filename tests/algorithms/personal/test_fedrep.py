"""Holds FedRep against its looped twin, and to its head and what it sends: two trials of different
rates, five devices of unequal shares, a round of all and two of some, so that absent devices and
the state between rounds count.
"""

from __future__ import annotations

from dataclasses import replace

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
from twins.setting import mlp

from otafl.algorithms.personal.partly_shared import compute_head_gradients, find_head
from otafl.core.contracts import Batch, Tensors
from otafl.core.errors import UserError
from otafl.models.base import Model, unflatten
from otafl.models.cnn import Cnn
from otafl.models.module_model import ModuleModel
from otafl.models.softmax_regression import SoftmaxRegression

pytestmark = pytest.mark.exact


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


def some(model: Model, rows: int) -> tuple[Tensors, Batch]:
    """Draw normal parameters and a weighted minibatch of inputs that fit the model."""
    generator = torch.Generator().manual_seed(3)
    params = {
        name: torch.randn(rows, *shape, generator=generator, dtype=torch.float64) / 2
        for name, shape in model.shapes.items()
    }
    x = torch.randn(rows, 4, INPUTS * INPUTS, generator=generator, dtype=torch.float64)
    weight = torch.rand(rows, 4, generator=generator, dtype=torch.float64)
    return params, Batch(x, torch.randint(0, CLASSES, (rows, 4), generator=generator), weight)


def test_head_gradients_are_the_models() -> None:
    cnn = Cnn(Cnn.Settings(channels=(2,), kernel=3, hidden=(4,)), (INPUTS, INPUTS), CLASSES)
    layers = torch.nn.Linear(INPUTS * INPUTS, 5), torch.nn.ReLU(), torch.nn.Linear(5, CLASSES)
    module = ModuleModel(torch.nn.Sequential(*layers).double(), (INPUTS * INPUTS,), CLASSES)
    for model, head in (
        (mlp((INPUTS * INPUTS, 5, CLASSES)), ("weight1", "bias1")),
        (cnn, ("weight2", "bias2")),
        (module, ("2.weight", "2.bias")),
    ):
        assert find_head(model) == head
        params, batch = some(model, 3)
        x = batch.x.view(3, 4, INPUTS, INPUTS) if model is cnn else batch.x
        batch = replace(batch, x=x)
        with torch.inference_mode():
            params = {name: block.clone() for name, block in params.items()}
            grads = compute_head_gradients(model, params, head, batch)
            _, expected = model.compute_gradients(params, batch)
        assert tuple(grads) == head
        for name, grad in grads.items():
            np.testing.assert_allclose(grad, expected[name], rtol=0, atol=1e-12)


def test_refuses_a_single_layer() -> None:
    regression = SoftmaxRegression(SoftmaxRegression.Settings(), (INPUTS,), CLASSES)
    with pytest.raises(UserError, match=r"'fedrep' .* has one layer; use mlp, cnn"):
        Rounds("fedrep", regression)
