"""Holds FedNova against its looped twin, with devices that take different numbers of local steps,
and against federated averaging where all take as many.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from contract.small import engine
from support.rival_rounds import make_received, to_arrays
from twins.rivals import Params, gradient, plus
from twins.setting import minibatch

from otafl.core.errors import UserError
from otafl.engine.engine import Engine
from otafl.models.base import unflatten
from otafl.scenario import load_scenario

pytestmark = pytest.mark.exact

RATE, SERVER_RATE = 0.3, 0.7
KEYS = {
    "algorithm": {
        "name": "fednova",
        "learning_rate": RATE,
        "server_learning_rate": SERVER_RATE,
    },
    "transport": "ideal",
    "training.batch_size": 10,
    "training.local_steps": 1,
    "training.local_epochs": 2,
    "devices.participants": 3,
    "engine.dtype": "float64",
}


def read_server(one: Engine, s: int) -> Params:
    model = one.parts.model
    return to_arrays(model, unflatten(one.server["model"], model.shapes), s)


@pytest.mark.twin
def test_fednova() -> None:
    """x <- x - beta tau_eff sum_i p_i eta d_i, d_i = G_i a_i / |a_i|_1, tau_eff = sum_i p_i
    |a_i|_1, where a_i of plain SGD is a one for each local step (equations 4 and 6)."""
    one, taken = engine(KEYS), set()
    data = one.parts.samples.training_data
    for t in range(3):
        cohort, before = one.select_cohort(None, t), [read_server(one, s) for s in range(3)]
        one.run_round(t)
        for s in range(3):
            rows = (cohort.trial == s).nonzero()[:, 0]
            counts = [int(data.count[row]) for row in cohort.flat_index[rows]]
            effective, total = 0.0, [0.0 * array for array in before[s]]
            for row, count in zip(rows, counts, strict=True):
                work, x, d = data.select_cohort(t, cohort.take(row[None])), before[s], None
                a = np.ones(2 * -(-count // 10))
                d = [0.0 * array for array in x]
                for j, factor in enumerate(a):
                    g = gradient(x, minibatch(work.draw_batch(j), 0))[1]
                    d, x = plus(d, g, factor / a.sum()), plus(x, g, -RATE)
                effective += count / sum(counts) * a.sum()
                total = plus(total, d, RATE * count / sum(counts))
                taken.add(len(a))
            expected = plus(before[s], total, -SERVER_RATE * effective)
            for ours, theirs in zip(read_server(one, s), expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    assert len(taken) > 3


def test_with_equal_steps_it_is_federated_averaging() -> None:
    changes = {"training.local_epochs": None, "training.local_steps": 4}
    averaged = KEYS["algorithm"] | {"name": "fedavg"}
    first, second = (
        engine(KEYS | changes | {"algorithm": one}) for one in (KEYS["algorithm"], averaged)
    )
    for t in range(2):
        first.run_round(t)
        second.run_round(t)
    torch.testing.assert_close(first.server["model"], second.server["model"], rtol=0, atol=1e-12)


def test_lost_packets_do_not_count_in_the_steps() -> None:
    """With one device delivered of several, its increment alone moves the model."""
    one = engine(KEYS | {"devices.participants": None})
    cohort = one.select_cohort(None, 0)
    broadcast = one.parts.algorithm.broadcast(one.server, cohort)
    payload, _ = one.training.train_cohort(broadcast, cohort, 0)
    steps = one.parts.samples.training_data.count_steps(cohort)
    assert len(set(steps.tolist())) > 3
    delivered = cohort.device == 2
    received = make_received(payload, cohort, delivered)
    new = one.parts.algorithm.update_server(one.server, received, one.parts.make_context(cohort, 0))
    moved = torch.from_numpy(steps)[delivered, None] * payload[0].tensors["model"][delivered]
    expected = one.server["model"] + SERVER_RATE * moved
    torch.testing.assert_close(new["model"], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("keys", [{"transport": "fsk_majority_vote"}, {"codec": "obda"}])
def test_votes_are_refused(keys: dict[str, str]) -> None:
    with pytest.raises(UserError, match="FedNova scales a mean"):
        load_scenario({"name": "votes", "algorithm": "fednova", "power": "full"} | keys)
