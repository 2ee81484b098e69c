"""Holds FedDyn against its looped twin, and its server's sum against the devices' estimates: two
trials of different rates, five devices of unequal shares, a round of all and two of some.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.rival_rounds import (
    MODEL,
    RATE,
    WHO,
    Rounds,
    assert_close,
    compute_losses,
    draw_batches,
    get_shares,
    list_members,
    read_server,
    to_arrays,
)
from twins.network import Minibatch
from twins.rivals import Params, gradient, plus

from otafl.core.contracts import Group
from otafl.models.base import unflatten

pytestmark = pytest.mark.exact

ALPHA = [0.5, 0.1]


def local(theta: Params, g: Params, batches: list[Minibatch], s: int) -> tuple[Params, float]:
    """Return the device's model and mean loss: w <- w - eta (grad L(w) - g + alpha (w - theta))."""
    w, total = theta, 0.0
    for batch in batches:
        loss, along = gradient(w, batch)
        pull = plus(w, theta, -1.0)
        along = [a - b + ALPHA[s] * p for a, b, p in zip(along, g, pull, strict=True)]
        w, total = plus(w, along, -RATE[s]), total + loss
    return w, total / len(batches)


@pytest.mark.twin
def test_feddyn() -> None:
    ours = Rounds("feddyn", MODEL, learning_rate=RATE, penalty=ALPHA)
    theta = [read_server(ours, s) for s in range(2)]
    h = [[0.0 * a for a in theta[s]] for s in range(2)]
    g = [[h[s]] * 5 for s in range(2)]
    for t, who in enumerate(WHO):
        one = ours.run_round(t, who)
        for s in range(2):
            shares, total, losses = get_shares(one, s), [0.0 * a for a in theta[s]], []
            members = zip(list_members(one, s), draw_batches(one, s), shares, strict=True)
            for k, batches, share in members:
                w, loss = local(theta[s], g[s][k], batches, s)
                moved = plus(w, theta[s], -1.0)
                g[s][k] = plus(g[s][k], moved, -ALPHA[s])
                total = plus(total, moved, float(share))
                losses.append(loss)
            h[s] = plus(h[s], total, -ALPHA[s])
            theta[s] = plus(plus(theta[s], total, 1 / sum(shares)), h[s], -1 / ALPHA[s])
            assert_close(read_server(ours, s), theta[s])
            assert_close(read_server(ours, s, "slope"), h[s])
            for k in range(5):
                flat = unflatten(ours.devices["slope"].flatten(0, 1), MODEL.shapes)
                assert_close(to_arrays(MODEL, flat, 5 * s + k), g[s][k])
            np.testing.assert_allclose(compute_losses(one, s), losses, rtol=1e-12)
    balance = (ours.all.weight.view(2, 5, 1) * ours.devices["slope"]).sum(1)
    torch.testing.assert_close(balance, ours.server["slope"], rtol=0, atol=1e-12)


def test_an_estimate_changes_by_what_was_received() -> None:
    """All of it, none, and the first three numbers."""
    ours = Rounds("feddyn", MODEL, learning_rate=RATE, penalty=ALPHA)
    cohort = ours.all.take(torch.tensor([0, 1, 2]))
    sent = torch.randn(3, MODEL.num_params, dtype=torch.float64)
    heard = torch.ones(3, MODEL.num_params, dtype=torch.bool)
    heard[1], heard[2, 3:] = False, False
    payload = (Group({"model": sent}),)
    state = {"slope": torch.zeros_like(sent)}
    after = ours.method.on_ack(state, payload, (heard,), ours.make_context(cohort, 0))["slope"]
    torch.testing.assert_close(after, -ALPHA[0] * sent * heard)
