"""Holds FedProx against its looped twin and in its limits: two trials of different rates, five
devices of unequal shares, some with fewer samples than a minibatch.
"""

from __future__ import annotations

import numpy as np
import pytest
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
    read_server,
    take_step,
)
from twins import rivals as twin

from otafl.algorithms.baselines.fedavg import FedProx

pytestmark = pytest.mark.exact


@pytest.mark.twin
def test_fedprox() -> None:
    penalty = [0.5, 3.0]
    ours = Rounds("fedprox", MODEL, penalty=penalty, **RATES)
    w = [read_server(ours, s) for s in range(2)]
    for t, who in enumerate(WHO):
        one = ours.run_round(t, who)
        for s in range(2):
            mean, loss = twin.fedprox(
                w[s], draw_batches(one, s), get_shares(one, s), RATE[s], penalty[s]
            )
            w[s] = take_step(w[s], mean, SERVER[s])
            assert_close(read_server(ours, s), w[s])
            np.testing.assert_allclose(compute_losses(one, s), loss, rtol=1e-12)


def test_refuses_a_step_that_jumps_over_the_centre() -> None:
    with pytest.raises(ValueError, match=r"learning_rate times penalty must be below 1"):
        FedProx.Settings(learning_rate=0.5, penalty=2)
