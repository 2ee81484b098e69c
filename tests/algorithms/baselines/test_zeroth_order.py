"""Zeroth-order learning against its looped twin and against gradients: two trials of different
steps, five devices of unequal shares, one of them with fewer samples than a minibatch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import scenario
from support.rival_rounds import SIZES, Rounds, compute_losses, draw_batches
from twins import zeroth_order as twin
from twins.exchange import loss_and_slope
from twins.network import Minibatch
from twins.setting import minibatch, mlp

from otafl import UserError
from otafl.algorithms.baselines.zeroth_order import draw_directions

WIDTHS = (6, 8, 3)
RATES = {"learning_rate": [0.3, 0.05], "decay": [0.0, 0.5], "smoothing": [1e-3, 1e-2]}
COUNT, ROUNDS = 7, 2

pytestmark = pytest.mark.exact


def loss_of(flat: np.ndarray, batch: Minibatch) -> float:
    return loss_and_slope(flat, WIDTHS, batch)[0]


@pytest.mark.twin
def test_equals_the_looped_twin() -> None:
    model = mlp(WIDTHS, "uniform")
    ours = Rounds("zeroth_order", model, {"directions": COUNT}, **RATES)
    assert list(model.shapes) == ["weight0", "bias0", "weight1", "bias1"]
    for t in range(ROUNDS):
        start, index = ours.server["model"].clone(), torch.arange(COUNT)
        one = ours.run_round(t)
        for s in range(2):
            u = draw_directions(
                ours.make_context(one.cohort, t),
                torch.full_like(index, s),
                index,
                model.num_params,
            )
            moved, sent, losses = twin.one_round(
                start[s].numpy(),
                u.numpy(),
                draw_batches(one, s),
                [float(n) for n in SIZES[s]],
                RATES["learning_rate"][s] / (1 + RATES["decay"][s] * t),
                RATES["smoothing"][s],
                loss_of,
            )
            slopes = one.payload[0].tensors["slopes"][5 * s : 5 * s + 5]
            np.testing.assert_allclose(slopes, sent, rtol=0, atol=1e-9)
            np.testing.assert_allclose(ours.server["model"][s], moved, rtol=0, atol=1e-9)
            np.testing.assert_allclose(compute_losses(one, s), losses, rtol=1e-12)


def test_slopes_are_those_of_the_gradient() -> None:
    """On a smooth part of the loss the two-sided difference is u^T grad F, to mu^2."""
    model = mlp(WIDTHS, "uniform")
    ours = Rounds("zeroth_order", model, {"directions": 5}, steps=1, smoothing=[1e-5] * 2)
    start = ours.server["model"][0].numpy().copy()
    one = ours.run_round(0)
    _, slope = loss_and_slope(start, WIDTHS, minibatch(one.work.draw_batch(0), 0))
    index = torch.arange(5)
    context = ours.make_context(one.cohort, 0)
    u = draw_directions(context, torch.zeros_like(index), index, model.num_params)
    slopes = one.payload[0].tensors["slopes"][0]
    np.testing.assert_allclose(slopes, u.numpy() @ slope, atol=1e-8)


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
