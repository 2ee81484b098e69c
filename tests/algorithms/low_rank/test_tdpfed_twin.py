"""TDPFed against its looped twin: two trials of different rates, five devices of unequal shares,
some with fewer samples than a minibatch; perceptron and convolutions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.rival_rounds import Rounds, draw_batches, get_shares
from torch import Tensor
from twins import tdpfed as twin
from twins.network import Array, Minibatch, gradients
from twins.setting import mlp

from otafl.algorithms.low_rank.tdpfed import TDPFed
from otafl.core.contracts import Batch, Tensors
from otafl.models.cnn import Cnn
from otafl.models.layered import LayeredModel
from otafl.models.layers import Linear

pytestmark = pytest.mark.twin

RATES = {
    "penalty": [12.0, 5.0],
    "personal_learning_rate": [0.08, 0.05],
    "factor_learning_rate": [8e-4, 3e-3],
    "server_learning_rate": [1.0, 1.4],
}
NEAR = 2e-9


def network(kind: str) -> LayeredModel:
    if kind == "mlp":
        return mlp((6, 8, 3))
    return Cnn(Cnn.Settings(channels=(3,), kernel=3, hidden=(4,)), (1, 4, 4), 3)


def loss_of(model: LayeredModel) -> twin.Loss:
    """Of a perceptron the twin's own; of convolutions the model's, whose gradients are tested by
    themselves."""

    def loss(
        weights: list[Array], biases: list[Array], batch: Minibatch
    ) -> tuple[float, list[Array], list[Array]]:
        if isinstance(model.layers[0], Linear):
            return gradients(weights, biases, batch)
        params: Tensors = {}
        for layer, w, b in zip(model.layers, weights, biases, strict=True):
            params[layer.weight] = torch.from_numpy(w.reshape(1, layer.inputs, layer.outputs))
            params[layer.bias] = torch.from_numpy(b[None])
        x, y, share = (torch.from_numpy(a[None]) for a in (batch.x, batch.y, batch.weight))
        value, by = model.compute_gradients(params, Batch(x, y, share))
        return (
            float(value),
            [
                by[m.weight][0].numpy().reshape(w.shape)
                for m, w in zip(model.layers, weights, strict=True)
            ],
            [by[layer.bias][0].numpy() for layer in model.layers],
        )

    return loss


def factors_of(model: LayeredModel, blocks: Tensors, row: int) -> list[list[Array]]:
    """As the paper has them, [I_n, R]."""
    out = []
    for layer in model.layers:
        names = [f"{layer.weight}.A{n}" for n in range(1, 5)]
        out.append([blocks[n][row].double().numpy().T.copy() for n in names if n in blocks])
    return out


def biases_of(model: LayeredModel, blocks: Tensors, row: int) -> list[Array]:
    return [blocks[layer.bias][row].double().numpy().copy() for layer in model.layers]


SETTINGS: list[dict[str, Any]] = [
    {},
    {"aggregation": "act"},
    {"aggregation": "tangent"},
]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        pytest.param(
            kind,
            one,
            id="-".join([*(map(str, one.values())), kind]),
            marks=pytest.mark.slow if kind == "cnn" and place % 3 else (),
        )
        for place, one in enumerate(SETTINGS)
        for kind in ("mlp", "cnn")
    ],
)
def test_equals_the_looped_twin(kind: str, settings: dict[str, Any]) -> None:
    model, steps = network(kind), {"solver_steps": 3, "factor_steps": 4}
    inputs = 6 if kind == "mlp" else 16
    ours = Rounds("tdpfed", model, {"rank": 3, **steps, **settings}, inputs=inputs, **RATES)
    for t in range(2):
        server = ours.server
        one = ours.run_round(t)
        for s in range(2):
            old = factors_of(model, server, s), biases_of(model, server, s)
            rates = {name: rate[s] for name, rate in RATES.items()}
            clients = [
                twin.client_update(*old, batches, loss_of(model), rates, (3, 4))
                for batches in draw_batches(one, s)
            ]
            state = {name: block[s] for name, block in ours.devices.items()}
            check_devices(model, state, one.loss[5 * s : 5 * s + 5], clients)
            share, beta = get_shares(one, s), RATES["server_learning_rate"][s]
            check_server(model, ours.method.settings, ours.server, s, *old, clients, share, beta)


def check_devices(
    model: LayeredModel, state: Tensors, loss: Tensor, expected: list[twin.Local]
) -> None:
    local = {n.removeprefix("local."): b for n, b in state.items() if n.startswith("local.")}
    for row, own in enumerate(expected):
        assert float(loss[row]) == pytest.approx(own.loss, rel=1e-10)
        for i, layer in enumerate(model.layers):
            for one, other in zip(factors_of(model, local, row)[i], own.factors[i], strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=NEAR)
            shape = (layer.inputs, layer.outputs)
            for name, value in (
                (f"personal.{layer.weight}", own.theta[i].reshape(shape)),
                (f"personal.{layer.bias}", own.theta_biases[i]),
                (f"local.{layer.bias}", own.biases[i]),
            ):
                np.testing.assert_allclose(state[name][row], value, rtol=0, atol=NEAR)


def check_server(
    model: LayeredModel,
    config: TDPFed.Settings,
    server: Tensors,
    s: int,
    old: list[list[Array]],
    old_biases: list[Array],
    clients: list[twin.Local],
    share: list[float],
    beta: float,
) -> None:
    new = factors_of(model, server, s)
    for i, bias in enumerate(biases_of(model, server, s)):
        expected = twin.afm(old_biases[i], [c.biases[i] for c in clients], share, beta)
        np.testing.assert_allclose(bias, expected, rtol=0, atol=NEAR)
        mean = twin.act(old[i], [c.factors[i] for c in clients], share, beta)
        apart = float(np.linalg.norm(twin.tensor(new[i]) - mean) / np.linalg.norm(mean))
        if config.aggregation == "afm":
            for mode, factor in enumerate(new[i]):
                sent = [c.factors[i][mode] for c in clients]
                expected = twin.afm(old[i][mode], sent, share, beta)
                np.testing.assert_allclose(factor, expected, rtol=0, atol=NEAR)
        elif len(new[i]) == 2 and config.aggregation == "act":
            tail = np.linalg.svd(mean, compute_uv=False)[new[i][0].shape[1] :]
            assert apart == pytest.approx(np.linalg.norm(tail) / np.linalg.norm(mean), abs=1e-9)
        else:  # near the mean tensor, much nearer than the old one was
            moved = np.linalg.norm(twin.tensor(old[i]) - mean) / np.linalg.norm(mean)
            assert apart < 0.25 * moved + 1e-12


@pytest.mark.parametrize("modes", [(5, 4), (3, 3, 2, 4)])
def test_the_twins_gradient_is_the_papers(modes: tuple[int, ...]) -> None:
    generator = np.random.default_rng(3)
    factors = [generator.standard_normal((size, 3)) for size in modes]
    theta = generator.standard_normal(modes)
    for mode in range(len(modes)):
        one, other = (
            form(theta, factors, mode, 1.7) for form in (twin.gradient, twin.same_gradient)
        )
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
