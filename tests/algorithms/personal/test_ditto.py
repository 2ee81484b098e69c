"""Holds Ditto against its looped twin and in its limits: two trials of different rates, five
devices of unequal shares, a round of all and two of some, so that absent devices and the state
between rounds count.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.rival_rounds import (
    MODEL,
    OWN,
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


def test_refuses_a_step_that_jumps_over_the_centre() -> None:
    with pytest.raises(
        ValueError, match=r"personal_learning_rate times penalty .* got 0.1 times 10"
    ):
        Ditto.Settings(personal_learning_rate=0.1, penalty=10)
