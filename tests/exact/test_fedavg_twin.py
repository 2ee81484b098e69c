"""FedAvg against its looped twin: two trials of different step sizes, decay and server rates, five
devices of unequal shares, one of them with fewer samples than a minibatch.

Mutations that must fail: decay ignored (or multiplied by the step), the server rate ignored, equal
weights, the model sent in place of its increment, one trial's rates for all, unweighted padding,
mean loss not divided by the steps.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from twins import fedavg as twin
from twins.setting import everyone, local_data, minibatch, mlp

from otafl.algorithms.config import FedAvgConfig
from otafl.algorithms.fedavg import FedAvg
from otafl.contracts import Received
from otafl.models.base import unflatten
from otafl.rng import Streams

WIDTHS = (6, 8, 5, 3)
SIZES = [[20, 10, 3, 30, 7], [9, 9, 25, 4, 40]]
RATES = {"learning_rate": [0.3, 0.05], "decay": [0.0, 0.5], "server_learning_rate": [1.0, 0.7]}
ROUNDS, STEPS = 4, 3


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_equals_the_looped_twin(dtype: torch.dtype, tolerance: float) -> None:
    streams = Streams([5, 5], [0, 1], dtype=dtype)
    sizes = torch.tensor(SIZES, dtype=dtype)
    cohort = everyone(sizes / sizes.sum(1, keepdim=True))
    data = local_data(SIZES, WIDTHS[0], WIDTHS[-1], streams, batch_size=4, steps=STEPS)
    model = mlp(WIDTHS)
    ours = FedAvg(FedAvgConfig(), model, 5)
    hyper = {name: torch.tensor(value, dtype=dtype) for name, value in RATES.items()}
    server, devices = ours.init(streams, hyper)
    assert devices == {}

    for t in range(ROUNDS):
        work = data.work(t, cohort)
        batches = [work.batch(step) for step in range(STEPS)]
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
        broadcast = ours.broadcast(server, cohort).rows(cohort, 0, cohort.size)
        state, payload, loss = ours.local(broadcast, {}, cohort, work, hyper, streams)
        assert state == {}
        assert torch.equal(server["model"], before)
        (group,) = payload
        assert (group.weighting, group.route) == ("mean", "uplink")
        sent = group.blocks["model"].view(2, 5, -1)
        mean = torch.einsum("sk,skp->sp", cohort.weight.view(2, 5), sent)
        received = Received(({"model": mean},), (torch.ones(2, dtype=dtype),), None, None)
        server = ours.combine(server, received, cohort, t, hyper, streams)

        after = unflatten(server["model"].double(), model.shapes)
        for s, (weights, biases, losses) in enumerate(expected):
            for layer, w, b in zip(model.layers, weights, biases, strict=True):
                np.testing.assert_allclose(after[layer.weight][s], w, rtol=0, atol=tolerance)
                np.testing.assert_allclose(after[layer.bias][s], b, rtol=0, atol=tolerance)
            np.testing.assert_allclose(loss[5 * s : 5 * s + 5], losses, rtol=tolerance)


def test_global_view_predicts_with_the_server_model() -> None:
    streams = Streams([1, 2], [0, 0], dtype=torch.float64)
    model = mlp(WIDTHS)
    ours = FedAvg(FedAvgConfig(), model, 5)
    server, _ = ours.init(streams, {})
    view = ours.views(server, {})["global"]
    x = torch.linspace(-1, 1, 4 * WIDTHS[0], dtype=torch.float64).view(1, 4, -1)
    start = model.init(lambda name, shape: streams.uniform(f"init/{name}", 0, shape))
    assert torch.equal(view.predict(view.params, x), model.logits(start, x))
    assert not torch.equal(view.params["model"][0], view.params["model"][1])
