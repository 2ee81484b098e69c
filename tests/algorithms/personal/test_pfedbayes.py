"""Holds pFedBayes against its looped twin over two rounds, its divergence against
torch.distributions, its limits and what it refuses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.exchange_bench import SIZES, WHO, WIDTHS, Bench, S, assert_close, make_cohort
from twins import pfedbayes
from twins.setting import mlp

from otafl.algorithms.personal.pfedbayes import PFedBayes, _limit_step
from otafl.core.errors import UserError
from otafl.models.cnn import Cnn

HYPER = {
    "learning_rate": [0.1, 0.05],
    "personal_learning_rate": [0.05, 0.1],
    "server_learning_rate": [1.0, 0.6],
    "penalty": [0.02, 0.05],
}

pytestmark = pytest.mark.exact


def bench_of(widths: tuple[int, ...] = WIDTHS, **changes: Any) -> Bench:
    hyper = {name: changes.pop(name, values) for name, values in HYPER.items()}
    return Bench(PFedBayes.Settings(**{"rho_start": -1.5, **changes}), mlp(widths), hyper)


@pytest.mark.twin
def test_equals_the_looped_twin() -> None:
    bench = bench_of()
    size = bench.model.num_params
    mu, rho = (bench.server[name].numpy().copy() for name in ("model", "rho"))
    q = [[(mu[s], rho[s])] * 5 for s in range(S)]
    w = [(mu[s], rho[s]) for s in range(S)]
    for t, who in enumerate(WHO):
        cohort = make_cohort(who)
        batches = bench.draw_batches(cohort, t)
        bench.local(cohort, t)
        bench.combine(cohort, t, None)
        noise = [
            bench.streams.draw_device_normal(
                "pfedbayes", (t << 32) + draw, cohort.trial, cohort.device, (size,)
            ).numpy()
            for draw in range(2)
        ]
        sums = [np.zeros((2, size)) for _ in range(S)]
        pairs = zip(cohort.trial.tolist(), cohort.device.tolist(), strict=True)
        for row, (s, k) in enumerate(pairs):
            q[s][k], copy, loss = pfedbayes.device(
                q[s][k],
                w[s],
                WIDTHS,
                batches[row],
                [[noise[b][row]] for b in range(2)],
                SIZES[s][k],
                HYPER["penalty"][s],
                HYPER["learning_rate"][s],
                HYPER["personal_learning_rate"][s],
            )
            share = SIZES[s][k] / sum(SIZES[s][j] for j in who[s])
            sums[s] += share * (np.stack(copy) - np.stack(w[s]))
            assert_close(bench.loss[row], np.array(loss))
        for s in range(S):
            moved = np.stack(w[s]) + HYPER["server_learning_rate"][s] * sums[s]
            w[s] = (moved[0], moved[1])
            assert_close(bench.server["model"][s], w[s][0])
            assert_close(bench.server["rho"][s], w[s][1])
            for k in range(5):
                assert_close(bench.devices["personal"][s, k], q[s][k][0])
                assert_close(bench.devices["personal_rho"][s, k], q[s][k][1])
    assert not np.allclose(q[0][0][0], w[0][0])
    views = bench.method.build_views(bench.server, bench.devices)
    assert torch.equal(views["personal"].params["model"][2], bench.devices["personal"][0, 2])
    assert torch.equal(views["global"].params["model"], bench.server["model"])


def test_refuses_convolutions() -> None:
    model = Cnn(Cnn.Settings(channels=(2,), kernel=3, hidden=(4,)), (8, 8), 3)
    with pytest.raises(UserError, match="use mlp or softmax_regression"):
        PFedBayes(PFedBayes.Settings(), model, 5)


def test_the_penalty_is_lowered_where_steps_on_it_would_diverge() -> None:
    """Where equal steps have rate zeta / (n sigma^2) above 2 at the least sigma, to where it is 1;
    else it stays, as where one of the steps undoes what the other makes larger."""
    rho = torch.tensor([[0.3, -2.5, 1.0]] * 4).double()
    least = torch.nn.functional.softplus(torch.tensor(-2.5).double()).square()
    rate = torch.full((4, 1), 0.01).double()
    zeta = torch.tensor([[0.1], [1.99], [2.01], [1e4]]).double() * least / rate
    made = _limit_step(zeta, rate, rate, rho)
    assert torch.equal(made[:2], zeta[:2])
    torch.testing.assert_close(rate[2:] * made[2:] / least, torch.ones(2, 1).double())
    assert torch.equal(_limit_step(zeta, 0.4 * rate, rate, rho)[:3], zeta[:3])
