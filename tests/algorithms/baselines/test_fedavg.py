"""Holds FedAvg against its looped twin: two trials of different step sizes, decay and server rates,
five devices of unequal shares, one of them with fewer samples than a minibatch. What they send is
the increment in one block, or the model in a block for each parameter, biases apart.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.rival_rounds import (
    MODEL,
    SIZES,
    Rounds,
    compute_losses,
    draw_batches,
    read_server,
    take_step,
)
from twins import rivals as twin

from otafl.core.contracts import Payload

RATES = {"learning_rate": [0.3, 0.05], "decay": [0.0, 0.5], "server_learning_rate": [1.0, 0.7]}
ROUNDS = 4

pytestmark = pytest.mark.exact


@pytest.mark.twin
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("settings", [{}, {"sends": "model"}])
def test_equals_the_looped_twin(
    settings: dict[str, str], dtype: torch.dtype, tolerance: float
) -> None:
    ours = Rounds("fedavg", MODEL, settings, dtype=dtype, **RATES)
    for t in range(ROUNDS):
        before = [read_server(ours, s) for s in range(2)]
        one = ours.run_round(t)
        check_groups(one.payload, settings)
        for s in range(2):
            mean, losses = twin.fedavg(
                before[s],
                draw_batches(one, s),
                SIZES[s],
                RATES["learning_rate"][s] / (1 + RATES["decay"][s] * t),
            )
            moved = take_step(before[s], mean, RATES["server_learning_rate"][s])
            for found, wanted in zip(read_server(ours, s), moved, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)
            np.testing.assert_allclose(compute_losses(one, s), losses, rtol=tolerance)


def check_groups(payload: Payload, settings: dict[str, str]) -> None:
    """Check the blocks of each group and its route."""
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
