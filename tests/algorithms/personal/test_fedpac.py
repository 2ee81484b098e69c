"""Holds FedPAC against its looped twin: two trials that differ in their
settings, devices of unequal shares, some absent, one whose payload is lost in each round.
"""

from __future__ import annotations

import numpy as np
import pytest
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

from otafl.algorithms.personal.fedpac import FedPAC
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


def test_refuses_a_model_without_features() -> None:
    model = SoftmaxRegression(SoftmaxRegression.Settings(), (6,), 3)
    with pytest.raises(UserError, match="use mlp with hidden layers or cnn"):
        FedPAC(FedPAC.Settings(), model, 5)
