"""Holds FedAvg against its looped twin: two trials of different step sizes, decay and server rates,
five devices of unequal shares, one of them with fewer samples than a minibatch. What they send is
the increment in one block, or the model in a block for each parameter, biases apart.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from twins import fedavg as twin
from twins.setting import everyone, local_data, minibatch, mlp

from otafl.algorithms.baselines.fedavg import FedAvg
from otafl.core.contracts import LocalContext, Payload, Received
from otafl.core.rng import Streams
from otafl.models.base import unflatten

WIDTHS = (6, 8, 5, 3)
SIZES = [[20, 10, 3, 30, 7], [9, 9, 25, 4, 40]]
RATES = {"learning_rate": [0.3, 0.05], "decay": [0.0, 0.5], "server_learning_rate": [1.0, 0.7]}
ROUNDS, STEPS = 4, 3

pytestmark = pytest.mark.exact


@pytest.mark.twin
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize(
    "settings",
    [{}, {"sends": "model"}],
)
def test_equals_the_looped_twin(
    settings: dict[str, str], dtype: torch.dtype, tolerance: float
) -> None:
    streams = Streams([5, 5], [0, 1], dtype=dtype)
    sizes = torch.tensor(SIZES, dtype=dtype)
    cohort = everyone(sizes / sizes.sum(1, keepdim=True))
    data = local_data(SIZES, WIDTHS[0], WIDTHS[-1], streams, batch_size=4, steps=STEPS)
    model = mlp(WIDTHS)
    ours = FedAvg(FedAvg.Settings.model_validate(settings), model, 5)
    hyper = {name: torch.tensor(value, dtype=dtype) for name, value in RATES.items()}
    server, devices = ours.init(streams, hyper)
    assert devices == {}

    for t in range(ROUNDS):
        work = data.select_cohort(t, cohort)
        batches = [work.draw_batch(step) for step in range(STEPS)]
        expected = []
        for s in range(2):
            params = unflatten(server["model"][s : s + 1].double(), model.shapes)
            expected.append(
                twin.one_round(
                    [params[layer.weight][0].numpy() for layer in model.layers],
                    [params[layer.bias][0].numpy() for layer in model.layers],
                    [[minibatch(b, 5 * s + k) for b in batches] for k in range(5)],
                    [float(n) for n in SIZES[s]],
                    RATES["learning_rate"][s] / (1 + RATES["decay"][s] * t),
                    RATES["server_learning_rate"][s],
                )
            )
        before = server["model"].clone()
        broadcast = ours.broadcast(server, cohort).expand_rows(cohort, 0, cohort.num_rows)
        context = LocalContext(cohort, hyper, streams, t, work)
        state, payload, loss = ours.run_local_update(broadcast, {}, context)
        assert state == {}
        assert torch.equal(server["model"], before)
        check_groups(payload, settings)
        received = exact_mean(payload, cohort.weight.view(2, 5))
        server = ours.update_server(server, received, context)

        after = unflatten(server["model"].double(), model.shapes)
        for s, (weights, biases, losses) in enumerate(expected):
            for layer, w, b in zip(model.layers, weights, biases, strict=True):
                np.testing.assert_allclose(after[layer.weight][s], w, rtol=0, atol=tolerance)
                np.testing.assert_allclose(after[layer.bias][s], b, rtol=0, atol=tolerance)
            np.testing.assert_allclose(loss[5 * s : 5 * s + 5], losses, rtol=tolerance)


def check_groups(payload: Payload, settings: dict[str, str]) -> None:
    """Check the blocks of each group and its route; a group's blocks must not alias the
    server's."""
    assert {group.weighting for group in payload} == {"mean"}
    routes = [group.route for group in payload]
    names = [list(group.tensors) for group in payload]
    if not settings:
        assert (routes, names) == (["uplink"], [["model"]])
        return
    assert routes == ["uplink", "uplink"]
    assert names == [["weight0", "weight1", "weight2"], ["bias0", "bias1", "bias2"]]
    shapes = [tuple(block.shape[1:]) for block in payload[0].tensors.values()]
    assert shapes == [(6, 8), (8, 5), (5, 3)]


def exact_mean(payload: Payload, weight: Tensor) -> Received:
    """Take the exact mean under weight [S, K]."""
    mean = tuple(
        {
            name: torch.einsum("sk,sk...->s...", weight, block.unflatten(0, weight.shape))
            for name, block in group.tensors.items()
        }
        for group in payload
    )
    return Received(mean, (weight.new_ones(len(weight)),) * len(mean), None, None)
