"""TDPFed against its looped twin: two trials of different rates, three devices of unequal shares,
one with fewer samples than a minibatch; perceptron and convolutions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from twins import tdpfed as twin
from twins.network import Array, Minibatch, gradients
from twins.setting import everyone, local_data, minibatch, mlp

from otafl.algorithms.low_rank.tdpfed import TDPFed
from otafl.core.contracts import Batch, LocalContext, Payload, Received, Tensors
from otafl.core.rng import Streams
from otafl.models.cnn import Cnn
from otafl.models.layered import LayeredModel
from otafl.models.layers import Linear

pytestmark = pytest.mark.twin

SIZES = [[20, 10, 3], [9, 25, 30]]
RATES = {
    "penalty": [12.0, 5.0],
    "personal_learning_rate": [0.08, 0.05],
    "factor_learning_rate": [8e-4, 3e-3],
    "server_learning_rate": [1.0, 1.4],
}
ROUNDS, STEPS = 2, 3
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
    {"weights": "uniform"},
    {"weights": "uniform", "factor_update": "alternate", "downlink": "both"},
    {"aggregation": "act"},
    {"aggregation": "act", "weights": "uniform", "downlink": "both"},
    {"aggregation": "act", "act_theta_start": "tensor", "downlink": "both"},
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
    model = network(kind)
    config = TDPFed.Settings.model_validate(
        {"rank": 3, "solver_steps": 3, "factor_steps": 4, **settings}
    )
    streams = Streams([5, 5], [0, 1], dtype=torch.float64)
    sizes = torch.tensor(SIZES, dtype=torch.float64)
    cohort = everyone(sizes / sizes.sum(1, keepdim=True))
    inputs = 6 if kind == "mlp" else 16
    data = local_data(SIZES, inputs, 3, streams, batch_size=4, steps=STEPS)
    ours = TDPFed(config, model, 3)
    hyper = {name: torch.tensor(value, dtype=torch.float64) for name, value in RATES.items()}
    server, devices = ours.init(streams, hyper)
    state = {name: b.expand(2, 3, *b.shape[2:]).flatten(0, 1) for name, b in devices.items()}
    dense: list[list[Array] | None] = [None, None]

    for t in range(ROUNDS):
        work = data.select_cohort(t, cohort)
        batches = [work.draw_batch(step) for step in range(STEPS)]
        old = [(factors_of(model, server, s), biases_of(model, server, s)) for s in range(2)]
        expected = [
            twin.client_update(
                *old[row // 3],
                dense[row // 3],
                [minibatch(b, row) for b in batches],
                loss_of(model),
                {name: rate[row // 3] for name, rate in RATES.items()},
                (3, 4),
                config.factor_update == "alternate",
            )
            for row in range(6)
        ]
        before = {name: block.clone() for name, block in server.items()}
        broadcast = ours.broadcast(server, cohort).expand_rows(cohort, 0, cohort.num_rows)
        context = LocalContext(cohort, hyper, streams, t, work)
        state, payload, loss = ours.run_local_update(broadcast, state, context)
        assert all(torch.equal(server[name], block) for name, block in before.items())
        check_devices(model, state, loss, expected)
        received = arrived(payload, cohort.weight.view(2, 3), config.aggregation == "act")
        server = ours.update_server(server, received, context)
        for s in range(2):
            share = [n / sum(SIZES[s]) for n in SIZES[s]]
            if config.weights == "uniform":
                share = [1 / 3] * 3
            clients, beta = expected[3 * s : 3 * s + 3], RATES["server_learning_rate"][s]
            check_server(model, config, server, s, *old[s], clients, share, beta)
            if config.act_theta_start == "tensor":
                dense[s] = [
                    twin.act(a, [c.factors[i] for c in clients], share, beta)
                    for i, a in enumerate(old[s][0])
                ]


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


def arrived(payload: Payload, weight: Tensor, told_apart: bool) -> Received:
    """weight [S, K]."""
    mean, counts = [], []
    for group in payload:
        w = weight if group.weighting == "mean" else torch.ones_like(weight)
        mean.append(
            {
                name: torch.einsum("sk,sk...->s...", w, block.unflatten(0, weight.shape))
                for name, block in group.tensors.items()
            }
        )
        counts.append(weight.sum(1))
    each = tuple(group.tensors for group in payload) if told_apart else None
    return Received(tuple(mean), tuple(counts), each, None)


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
