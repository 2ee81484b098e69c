"""Holds FedProx against its looped twin and in its limits: two trials of different rates, five
devices of unequal shares, some with fewer samples than a minibatch.

Mutations that must fail: the penalty's centre the model itself, the gradient step not divided by
1 - s, one trial's penalty for all, server_learning_rate ignored; the refusal left out.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.rival_rounds import (
    DTYPES,
    GRADIENT,
    LOAD,
    MODEL,
    PARAMETERS,
    RATE,
    RATES,
    SERVER,
    WHO,
    Rounds,
    batches,
    close,
    in_step,
    losses,
    same_model,
    server,
    shares,
    stepped,
)
from twins import rivals as twin

from otafl.algorithms.fedprox import FedProx

pytestmark = pytest.mark.exact


@pytest.mark.twin
def test_fedprox() -> None:
    penalty = [0.5, 3.0]
    ours = Rounds("fedprox", MODEL, penalty=penalty, **RATES)
    w = [server(ours, s) for s in range(2)]
    for t, who in enumerate(WHO):
        one = ours.round(t, who)
        for s in range(2):
            mean, loss = twin.fedprox(w[s], batches(one, s), shares(one, s), RATE[s], penalty[s])
            w[s] = stepped(w[s], mean, SERVER[s])
            close(server(ours, s), w[s])
            np.testing.assert_allclose(losses(one, s), loss, rtol=1e-12)


@DTYPES
def test_the_averaged_model_is_fedavgs(dtype: torch.dtype) -> None:
    """It is, bit for bit, without penalty."""
    one = Rounds("fedprox", MODEL, dtype=dtype, **RATES, penalty=[0.0, 0.0])
    in_step(one, Rounds("fedavg", MODEL, dtype=dtype, **RATES), same_model)


def test_a_strong_penalty_holds_fedprox() -> None:
    """With s = rate penalty near 1 a device stays at its centre but for a gradient step."""
    one = Rounds("fedprox", MODEL, learning_rate=[1e-6] * 2, penalty=[0.999999e6] * 2)
    moved = one.round(0).payload[0].blocks["model"]
    assert 0 < float(moved.abs().max()) < 1e-5


def test_refuses_a_step_that_jumps_over_the_centre() -> None:
    with pytest.raises(ValueError, match=r"learning_rate times penalty must be below 1"):
        FedProx.Settings(learning_rate=0.5, penalty=2)


def test_views_and_operations() -> None:
    """A step and its penalty are 2 + 3 operations a parameter."""
    one = Rounds("fedprox", MODEL)
    assert set(one.method.views(one.server, one.devices)) == {"global"}
    assert one.method.flops(LOAD) == 60 * GRADIENT + (6 * 5 + 1) * PARAMETERS
