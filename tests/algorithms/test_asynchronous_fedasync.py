"""Holds FedAsync against its looped twin in sequences of arrivals, against numbers by hand, and in
limits in which it is federated averaging.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from contract.small import engine
from support.rival_rounds import SIZES
from support.slots import F64, RATES, Slots, assert_close, list_deliveries
from twins import asynchronous as twin
from twins.rivals import Params, plus, prox_sgd

from otafl.core.contracts import Received
from otafl.scenario import ScenarioError

pytestmark = pytest.mark.exact

EXPONENTS = [0.5, 1.3]


@pytest.mark.twin
@pytest.mark.parametrize("sends", ["model", "increment"])
def test_fedasync_one_by_one(sends: str) -> None:
    """There are 40 arrivals of stale models; every device starts anew from what its arrival
    made."""
    alpha, rho = [0.6, 0.9], [0.5, 3.0]
    fields = {"learning_rate": RATES, "mixing": alpha, "rho": rho, "exponent": EXPONENTS}
    ours = Slots("fedasync", {"sends": sends}, **fields)
    x = [ours.get_model(s) for s in range(2)]
    held: dict[tuple[int, int], tuple[Params, Params, int]] = {}

    def begin(who: list[tuple[int, int]], t: int) -> None:
        losses = ours.begin(who, t)
        for (s, k), loss in zip(sorted(who), losses.tolist(), strict=True):
            new, mean = prox_sgd(x[s], ours.draw_batches(s, k, t), RATES[s], rho[s])
            held[s, k] = (x[s], new, t)
            assert loss == pytest.approx(mean, rel=1e-12)

    begin([(s, k) for s in range(2) for k in range(5)], 0)
    seen = set()
    for t, who in enumerate(list_deliveries(40), 1):
        late = ours.run_slot(who)
        for (s, k), d in zip(who, late, strict=True):
            x_tau, new, tau = held.pop((s, k))
            assert d == t - 1 - tau
            seen.add(d)
            a = alpha[s] * twin.discount(d, EXPONENTS[s])
            if sends == "model":
                x[s] = twin.mixed(x[s], new, a)
            else:
                x[s] = plus(x[s], plus(new, x_tau, -1.0), a)
            assert_close(ours.get_model(s), x[s])
        begin(who, t)
    assert min(seen) == 0
    assert max(seen) > 6


@pytest.mark.twin
def test_fedasync_together_is_the_mean_of_the_papers_steps() -> None:
    """Several devices in a slot give the mean under data shares of (1 - a_k) x + a_k x_k."""
    ours = Slots("fedasync", {}, learning_rate=RATES, mixing=[0.6, 0.9])
    everybody = [(s, k) for s in range(2) for k in range(5)]
    held = {key: (0, ours.get_model(key[0])) for key in everybody}
    ours.begin(everybody, 0)
    for t, who in enumerate(list_deliveries(15, 4), 1):
        x = [ours.get_model(s) for s in range(2)]
        ours.run_slot(who)
        for s in range(2):
            there = [k for trial, k in who if trial == s]
            share = np.array([SIZES[s][k] for k in there], float)
            share /= share.sum()
            total = [0.0 * a for a in x[s]]
            for k, w in zip(there, share, strict=True):
                tau, start = held[s, k]
                new, _ = prox_sgd(start, ours.draw_batches(s, k, tau), RATES[s], 0.005)
                a = [0.6, 0.9][s] * twin.discount(t - 1 - tau, 0.5)
                total = plus(total, twin.mixed(x[s], new, a), float(w))
            assert_close(ours.get_model(s), total)
        ours.begin(who, t)
        held |= {key: (t, ours.get_model(key[0])) for key in who}


def test_mixing_by_hand() -> None:
    """From x = 1, take two equal devices with x_1 = 3, d = 0 and x_2 = -1, d = 3: s = 1 and 1/2,
    alpha 0.8. The received mean is (3 - 0.5) / 1.5 = 5/3, a = 0.8 x 3/4, and x = 1 + 0.6 x 2/3 =
    1.4; with the second known to be lost, a = 0.8 and x = 2.6."""
    ours = Slots("fedasync", {}, mixing=[0.8, 0.8])
    cohort = replace(
        ours.all.take(torch.tensor([0, 1])),
        staleness=torch.tensor([0, 3]),
        weight=torch.tensor([0.5, 0.5], dtype=F64),
        counts=(2, 0),
    )
    cohort = ours.reweight(cohort)
    one = torch.ones(2, 1, dtype=F64)
    count = torch.tensor([1.0, 0.0], dtype=F64)
    for mean, came, x in ((5 / 3, None, 1.4), (3.0, torch.tensor([True, False]), 2.6)):
        known = None if came is None else (came,)
        received = Received(({"model": mean * one},), (count,), None, count > 0, known)
        got = ours.method.update_server({"model": one}, received, ours.make_context(cohort))
        assert got["model"][0].item() == pytest.approx(x)
        assert got["model"][1].item() == 1.0


def test_refuses_a_step_that_jumps_over_the_received_model() -> None:
    with pytest.raises(ScenarioError, match="learning_rate times rho must be below 1"):
        engine({"algorithm": {"name": "fedasync", "learning_rate": 2.0, "rho": 0.6}})
