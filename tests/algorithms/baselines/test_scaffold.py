"""Holds SCAFFOLD against its looped twin, in its limits, and to what it sends and keeps: two trials
of different rates, five devices of unequal shares, a round of all and two of some, so that absent
devices and the state between rounds count.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.rival_rounds import (
    MODEL,
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
    read_server,
    receive_exactly,
    to_arrays,
)
from twins import rivals as twin

from otafl.core.contracts import Group
from otafl.models.base import unflatten

pytestmark = pytest.mark.exact


@pytest.mark.twin
def test_scaffold() -> None:
    ours = Rounds("scaffold", MODEL, **RATES)
    x = [read_server(ours, s) for s in range(2)]
    c = [[0.0 * a for a in x[s]] for s in range(2)]
    own = [[c[s]] * 5 for s in range(2)]
    for t, who in enumerate(WHO):
        one = ours.run_round(t, who)
        for s in range(2):
            there = list_members(one, s)
            x[s], c[s], new, loss = twin.scaffold(
                x[s],
                c[s],
                [own[s][k] for k in there],
                draw_batches(one, s),
                get_shares(one, s),
                RATE[s],
                SERVER[s],
            )
            for k, control in zip(there, new, strict=True):
                own[s][k] = control
            assert_close(read_server(ours, s), x[s])
            assert_close(read_server(ours, s, "control"), c[s])
            for k in range(5):
                flat = unflatten(ours.devices["control"].flatten(0, 1), MODEL.shapes)
                assert_close(to_arrays(MODEL, flat, 5 * s + k), own[s][k])
            np.testing.assert_allclose(compute_losses(one, s), loss, rtol=1e-12)
    weight = ours.all.weight.view(2, 5, 1)
    balance = (weight * ours.devices["control"]).sum(1)
    torch.testing.assert_close(balance, ours.server["control"], rtol=0, atol=1e-12)


def test_scaffold_counts_what_arrived() -> None:
    """c moves by the share of all samples that the mean is of."""
    one = Rounds("scaffold", MODEL, **RATES)
    one.run_round(0)
    senders = one.all.take(torch.tensor([0, 3, 6, 9]))
    control = one.devices["control"].flatten(0, 1)[senders.flat_index]
    broadcast = one.method.broadcast(one.server, senders).expand_rows(senders, 0, senders.num_rows)
    _, payload, _ = one.method.run_local_update(
        broadcast, {"control": control}, one.make_context(senders, 1)
    )
    half = torch.tensor([1.0, 0.5], dtype=torch.float64)
    arrived = replace(receive_exactly(payload, senders), group_weight=(half, half))
    after = one.method.update_server(one.server, arrived, one.make_context(senders, 1))
    came = torch.tensor([20 + 30, 0.5 * (9 + 40)], dtype=torch.float64)
    share = came / torch.tensor([70.0, 87.0])
    moved = after["control"] - one.server["control"]
    np.testing.assert_allclose(moved, share[:, None] * arrived.mean[1]["control"], atol=1e-12)


def test_a_device_moves_its_control_by_what_was_received() -> None:
    """All of it, none, and the first three numbers, whatever came of the model's change."""
    ours = Rounds("scaffold", MODEL, **RATES)
    change = torch.randn(3, MODEL.num_params, dtype=torch.float64)
    heard = torch.ones(3, MODEL.num_params, dtype=torch.bool)
    heard[1], heard[2, 3:] = False, False
    payload = Group({"model": 0.0 * change}), Group({"control": change})
    masks = torch.tensor([[False], [True], [True]]), heard
    context = ours.make_context(ours.all.take(torch.tensor([0, 3, 6])), 1)
    state = {"control": torch.ones_like(change)}
    after = ours.method.on_ack(state, payload, masks, context)["control"]
    torch.testing.assert_close(after, 1.0 + change * heard)
