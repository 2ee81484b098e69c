"""Zeroth-order learning against its looped twin and against gradients: two trials of different
steps, five devices of unequal shares, one of them with fewer samples than a minibatch.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import scenario
from twins import zeroth_order as twin
from twins.network import Minibatch, gradients
from twins.setting import everyone, local_data, minibatch, mlp

from otafl import UserError
from otafl.algorithms.baselines.zeroth_order import ZerothOrder, draw_directions
from otafl.core.contracts import LocalContext, Received
from otafl.core.rng import Streams

WIDTHS = (6, 8, 3)
SIZES = [[20, 10, 3, 30, 7], [9, 9, 25, 4, 40]]
RATES = {"learning_rate": [0.3, 0.05], "decay": [0.0, 0.5], "smoothing": [1e-3, 1e-2]}
COUNT, ROUNDS, STEPS = 7, 2, 3

pytestmark = pytest.mark.exact


def split(flat: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Weights and biases of a network, from its parameters side by side."""
    weights, biases, place = [], [], 0
    for rows, columns in itertools.pairwise(WIDTHS):
        weights.append(flat[place : place + rows * columns].reshape(rows, columns))
        place += rows * columns
        biases.append(flat[place : place + columns])
        place += columns
    assert place == len(flat)
    return weights, biases


def loss_of(flat: np.ndarray, batch: Minibatch) -> float:
    return gradients(*split(flat), batch)[0]


@pytest.mark.twin
def test_equals_the_looped_twin() -> None:
    streams = Streams([5, 5], [0, 1], dtype=torch.float64)
    sizes = torch.tensor(SIZES, dtype=torch.float64)
    cohort = everyone(sizes / sizes.sum(1, keepdim=True))
    data = local_data(SIZES, WIDTHS[0], WIDTHS[-1], streams, batch_size=4, steps=STEPS)
    model = mlp(WIDTHS, "uniform")
    ours = ZerothOrder(ZerothOrder.Settings(directions=COUNT), model, 5)
    hyper = {name: torch.tensor(value, dtype=torch.float64) for name, value in RATES.items()}
    server, devices = ours.init(streams, hyper)
    assert devices == {}
    assert list(model.shapes) == ["weight0", "bias0", "weight1", "bias1"]
    for t in range(ROUNDS):
        work = data.select_cohort(t, cohort)
        context = LocalContext(cohort, hyper, streams, t, work)
        index = torch.arange(COUNT)
        expected = []
        for s in range(2):
            u = draw_directions(context, torch.full_like(index, s), index, model.num_params)
            expected.append(
                twin.one_round(
                    server["model"][s].numpy(),
                    u.numpy(),
                    [
                        [minibatch(work.draw_batch(i), 5 * s + k) for i in range(STEPS)]
                        for k in range(5)
                    ],
                    [float(n) for n in SIZES[s]],
                    RATES["learning_rate"][s] / (1 + RATES["decay"][s] * t),
                    RATES["smoothing"][s],
                    loss_of,
                )
            )
        before = server["model"].clone()
        broadcast = ours.broadcast(server, cohort).expand_rows(cohort, 0, cohort.num_rows)
        _, (group,), loss = ours.run_local_update(broadcast, {}, context)
        assert torch.equal(server["model"], before)
        slopes = group.tensors["slopes"]
        mean = (slopes * cohort.weight[:, None]).view(2, 5, COUNT).sum(1)
        received = Received(({"slopes": mean},), (torch.ones(2),), None, None)
        server = ours.update_server(server, received, context)
        for s, (moved, sent, losses) in enumerate(expected):
            np.testing.assert_allclose(slopes[5 * s : 5 * s + 5], sent, rtol=0, atol=1e-9)
            np.testing.assert_allclose(server["model"][s], moved, rtol=0, atol=1e-9)
            np.testing.assert_allclose(loss[5 * s : 5 * s + 5], losses, rtol=1e-12)


def test_slopes_are_those_of_the_gradient() -> None:
    """On a smooth part of the loss the two-sided difference is u^T grad F, to mu^2."""
    streams = Streams([1], [0], dtype=torch.float64)
    cohort = everyone(torch.ones(1, 1, dtype=torch.float64))
    data = local_data([[20]], WIDTHS[0], WIDTHS[-1], streams, batch_size=8, steps=1)
    model = mlp(WIDTHS, "uniform")
    ours = ZerothOrder(ZerothOrder.Settings(directions=5), model, 1)
    hyper = {"learning_rate": 0.1, "decay": 0.0, "smoothing": 1e-5}
    tensors = {name: torch.tensor([value]).double() for name, value in hyper.items()}
    server, _ = ours.init(streams, tensors)
    context = LocalContext(cohort, tensors, streams, 0, data.select_cohort(0, cohort))
    broadcast = ours.broadcast(server, cohort).expand_rows(cohort, 0, 1)
    _, (group,), _ = ours.run_local_update(broadcast, {}, context)
    batch = minibatch(context.local_data.draw_batch(0), 0)
    _, by_weight, by_bias = gradients(*split(server["model"][0].numpy()), batch)
    slope = np.concatenate(
        [np.append(w.ravel(), b) for w, b in zip(by_weight, by_bias, strict=True)]
    )
    index = torch.arange(5)
    u = draw_directions(context, torch.zeros_like(index), index, model.num_params)
    np.testing.assert_allclose(group.tensors["slopes"][0], u.numpy() @ slope, atol=1e-8)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"devices.protocol": "asynchronous", "devices.compute": "phone"}, "'asynchronous' does"),
        ({"devices.late": "next", "devices.compute": "phone"}, "'next' does not go with"),
        ({"codec": "topk"}, "use error_feedback: false"),
    ],
)
def test_what_belongs_to_another_round_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        scenario({"algorithm": "zeroth_order", **keys})
