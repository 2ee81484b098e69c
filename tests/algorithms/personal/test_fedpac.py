"""Holds FedPAC against its looped twin, by hand and in its limits: two trials that differ in their
settings, devices of unequal shares, some absent, one whose payload is lost in each round.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.exchange_bench import (
    LOST,
    SIZES,
    WHO,
    WIDTHS,
    Bench,
    K,
    S,
    assert_close,
    get_prefixed,
    load_full_batch,
    make_cohort,
    make_delivered_mask,
    map_rows,
    to_vector,
)
from twins import exchange as twin
from twins.network import Array
from twins.setting import mlp

from otafl.algorithms.personal.fedpac import FedPAC, compute_mixing_weights, compute_statistics
from otafl.core.contracts import Batch
from otafl.core.errors import UserError
from otafl.models.softmax_regression import SoftmaxRegression

pytestmark = pytest.mark.exact

PAC = {
    "learning_rate": [0.2, 0.1],
    "server_learning_rate": [1.0, 0.7],
    "personal_learning_rate": [0.3, 0.1],
    "penalty": [1.0, 4.0],
}


@pytest.mark.twin
def test_fedpac() -> None:
    model = mlp(WIDTHS)
    bench = Bench(FedPAC.Settings(), model, PAC)
    personal = {name: bench.devices[f"personal.{name}"] for name in model.shapes}
    shared = [twin.split(to_vector(personal, model, s, 0), WIDTHS)[0] for s in range(S)]
    head = [[row.numpy() for row in heads] for heads in bench.server["head"]]
    centroid: list[list[Array | None]] = [[None] * WIDTHS[-1] for _ in range(S)]
    for t, (who, lost) in enumerate(zip(WHO, LOST, strict=True)):
        cohort = make_cohort(who)
        came = make_delivered_mask(cohort, lost)
        batches = bench.draw_batches(cohort, t)
        heads = bench.draw_batches(cohort, t, 1)
        bench.local(cohort, t)
        bench.combine(cohort, t, came)
        for s in range(S):
            rate, server_rate, head_rate, penalty = (values[s] for values in PAC.values())
            told: dict[int, twin.Told] = {}
            for k, row in map_rows(cohort, s).items():
                one, loss = twin.pac_device(
                    shared[s],
                    head[s][k],
                    centroid[s],
                    WIDTHS,
                    load_full_batch(bench, cohort, t, row),
                    heads[row][:1],
                    batches[row],
                    rate,
                    head_rate,
                    penalty,
                )
                assert_close(bench.loss[row], np.array(loss))
                assert_close(
                    get_prefixed(bench, "personal", s, k), np.concatenate([one.body, one.head])
                )
                if came[row]:
                    told[k] = one
            heard = list(told.values())
            samples = sum(SIZES[s][k] for k in told)
            mean = sum(SIZES[s][k] / samples * one.body for k, one in told.items())
            shared[s] = shared[s] + server_rate * (mean - shared[s])
            for place, k in enumerate(told):
                weights = twin.head_weights(heard, place)
                head[s][k] = sum(a * one.head for a, one in zip(weights, heard, strict=True))
            centroid[s] = twin.pac_server(heard, centroid[s])
            assert_close(bench.server["model"][s], shared[s])
            for k in range(K):
                assert_close(bench.server["head"][s, k], head[s][k], 1e-9)
            for c, known in enumerate(centroid[s]):
                assert bool(bench.server["known"][s, c]) == (known is not None)
                if known is not None:
                    assert_close(bench.server["centroid"][s, c], known, 1e-10)


def test_mixing_in_its_limits() -> None:
    """Alike devices share heads in inverse proportion to their variances; one that is far from all
    keeps its own; a device alone as well; absent ones have no share."""
    moment = torch.ones(1, 4, 2, 3, dtype=torch.float64)
    variance = torch.tensor([[0.1, 0.2, 0.4, 0.1]], dtype=torch.float64)
    everyone = torch.ones(1, 4)
    shares = (1 / variance[0]) / (1 / variance[0]).sum()
    weights = compute_mixing_weights(moment, variance, everyone)[0]
    torch.testing.assert_close(weights, shares.expand(4, 4), rtol=1e-7, atol=1e-9)
    moment[0, 2] += 1000.0
    weights = compute_mixing_weights(moment, variance, everyone)[0]
    torch.testing.assert_close(weights[2], torch.eye(4).double()[2], rtol=0, atol=1e-6)
    assert float(weights[0, 2]) < 1e-6
    some = torch.tensor([[1.0, 0.0, 0.0, 1.0]])
    expected = torch.tensor([0.5, 0.0, 0.0, 0.5], dtype=torch.float64)
    torch.testing.assert_close(
        compute_mixing_weights(moment, variance, some)[0, 3], expected, atol=1e-9, rtol=0
    )
    one = compute_mixing_weights(moment[:, :1], variance[:, :1], everyone[:, :1])
    assert torch.equal(one, torch.ones(1, 1, 1, dtype=torch.float64))
    nobody = compute_mixing_weights(moment, variance, torch.zeros(1, 4))
    assert nobody.isfinite().all()


def test_statistics_by_hand() -> None:
    """Features are (1, 0), (3, 0) of class 0 and (0, 2) of class 1, and there is a padding that
    must not count: h = ((4/3, 0), (0, 2/3)), mean |f|^2 = 14/3, V = (14/3 - 16/9 - 4/9) / 3 =
    22/27."""
    method = FedPAC(FedPAC.Settings(), mlp((2, 2, 2)), 3)
    x = torch.tensor([[[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [9.0, 9.0]]]).double()
    y = torch.tensor([[0, 0, 1, 1]])
    full = Batch(x, y, torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0.0]]).double())
    passed = {"weight0": torch.eye(2).double()[None], "bias0": torch.zeros(1, 2).double()}
    total, square = method.sum_features(passed, full)
    assert total.tolist() == [[[4.0, 0.0], [0.0, 2.0]]]
    moment, variance = compute_statistics(total, square, torch.tensor([[2, 1]]))
    expected = torch.tensor([[4 / 3, 0.0], [0.0, 2 / 3]]).double()
    torch.testing.assert_close(moment[0], expected)
    torch.testing.assert_close(variance, torch.tensor([22 / 27]).double())


def test_refuses_a_model_without_features() -> None:
    model = SoftmaxRegression(SoftmaxRegression.Settings(), (6,), 3)
    with pytest.raises(UserError, match="use mlp with hidden layers or cnn"):
        FedPAC(FedPAC.Settings(), model, 5)
