"""Holds Ditto against its looped twin and in its limits: two trials of different rates, five
devices of unequal shares, a round of all and two of some, so that absent devices and the state
between rounds count.
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
    OWN,
    PARAMETERS,
    RATE,
    RATES,
    SERVER,
    WHO,
    Rounds,
    assert_close,
    assert_equal_steps,
    assert_same_devices,
    assert_same_model,
    compute_losses,
    draw_batches,
    get_shares,
    list_members,
    read_device,
    read_server,
    take_step,
)
from twins import rivals as twin

from otafl.algorithms.personal.own_models import Ditto

pytestmark = pytest.mark.exact


@pytest.mark.twin
def test_ditto() -> None:
    penalty = [0.5, 2.0]
    ours = Rounds("ditto", MODEL, penalty=penalty, personal_learning_rate=OWN, **RATES)
    w = [read_server(ours, s) for s in range(2)]
    v = [[w[s]] * 5 for s in range(2)]
    for t, who in enumerate(WHO):
        one = ours.run_round(t, who)
        for s in range(2):
            there = list_members(one, s)
            mean, new, loss = twin.ditto(
                w[s],
                [v[s][k] for k in there],
                draw_batches(one, s),
                get_shares(one, s),
                RATE[s],
                OWN[s],
                penalty[s],
            )
            w[s] = take_step(w[s], mean, SERVER[s])
            for k, params in zip(there, new, strict=True):
                v[s][k] = params
            assert_close(read_server(ours, s), w[s])
            for k in range(5):
                assert_close(read_device(ours, s, k), v[s][k])
            np.testing.assert_allclose(compute_losses(one, s), loss, rtol=1e-12)


@DTYPES
def test_the_averaged_model_is_fedavgs(dtype: torch.dtype) -> None:
    """It is, whatever the method does beside it."""
    one = Rounds("ditto", MODEL, dtype=dtype, **RATES)
    assert_equal_steps(one, Rounds("fedavg", MODEL, dtype=dtype, **RATES), assert_same_model)


@DTYPES
def test_ditto_without_penalty_trains_alone(dtype: torch.dtype) -> None:
    """It does in every round."""
    own = {"personal_learning_rate": OWN}
    one = Rounds("ditto", MODEL, dtype=dtype, penalty=[0.0, 0.0], **own, **RATES)
    assert_equal_steps(one, Rounds("local_only", MODEL, dtype=dtype, **own), assert_same_devices)


def test_ditto_with_a_strong_penalty_follows() -> None:
    one = Rounds(
        "ditto", MODEL, penalty=[0.999999e6] * 2, personal_learning_rate=[1e-6] * 2, **RATES
    )
    one.run_round(0)
    received = one.server["model"].clone()
    one.run_round(1)
    own = {n.removeprefix("personal."): b for n, b in one.devices.items()}
    flat = torch.cat([block.flatten(2) for block in own.values()], 2)
    np.testing.assert_allclose(flat, received[:, None].expand_as(flat), rtol=0, atol=1e-5)


def test_refuses_a_step_that_jumps_over_the_centre() -> None:
    with pytest.raises(
        ValueError, match=r"personal_learning_rate times penalty .* got 0.1 times 10"
    ):
        Ditto.Settings(personal_learning_rate=0.1, penalty=10)


def test_views_and_operations() -> None:
    """Two gradients; two steps and a penalty, 2 + 2 + 3 operations a parameter."""
    one = Rounds("ditto", MODEL)
    assert set(one.method.build_views(one.server, one.devices)) == {"global", "personal"}
    assert one.method.count_flops(LOAD) == 2 * 60 * GRADIENT + (6 * 7 + 1) * PARAMETERS
