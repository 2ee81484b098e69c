"""Holds FedAMP and HeurFedAMP against their looped twin: two trials
that differ in their settings, devices of unequal shares, some absent, one whose payload is lost in
each round.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.exchange_bench import (
    LOST,
    WHO,
    WIDTHS,
    Bench,
    K,
    S,
    assert_close,
    get_prefixed,
    make_cohort,
    make_delivered_mask,
    map_rows,
)
from twins import exchange as twin
from twins.setting import mlp

from otafl.algorithms.personal.fedamp import (
    PROX_STEPS,
    FedAMP,
)

pytestmark = pytest.mark.exact


AMP = {
    "learning_rate": [0.1, 0.05],
    "penalty": [2.0, 5.0],
    "sigma": [0.5, 2.0],
    "attention": [1.0, 0.6],
    "cosine_scale": [2.0, 5.0],
    "self_weight": [0.5, 0.2],
}


@pytest.mark.twin
@pytest.mark.parametrize("weights", ["kernel", "cosine"])
def test_fedamp(weights: Any) -> None:
    bench = Bench(FedAMP.Settings(weights=weights), mlp(WIDTHS), AMP)
    known = [[row.numpy() for row in models] for models in bench.server["models"]]
    w = [list(models) for models in known]
    for t, (who, lost) in enumerate(zip(WHO, LOST, strict=True)):
        cohort = make_cohort(who)
        came = make_delivered_mask(cohort, lost)
        batches = bench.draw_batches(cohort, t)
        bench.local(cohort, t)
        bench.combine(cohort, t, came)
        for s in range(S):
            setting = {name: values[s] for name, values in AMP.items()}
            if weights == "kernel":
                alpha = setting["attention"] * setting["sigma"] / K
                xi = twin.attention(known[s], alpha, setting["sigma"])
            else:
                xi = twin.cosine_attention(
                    known[s], setting["cosine_scale"], setting["self_weight"]
                )
            cloud = [sum((x * m for x, m in zip(row, known[s], strict=True)), 0.0) for row in xi]
            for k, row in map_rows(cohort, s).items():
                w[s][k], loss = twin.fedamp_device(
                    w[s][k],
                    np.asarray(cloud[k]),
                    WIDTHS,
                    batches[row],
                    setting["learning_rate"],
                    setting["penalty"],
                    PROX_STEPS,
                )
                assert_close(bench.loss[row], np.array(loss))
                assert_close(bench.sent[0].tensors["model"][row], w[s][k])
                if came[row]:
                    known[s][k] = w[s][k]
            for k in range(K):
                assert_close(get_prefixed(bench, "personal", s, k), w[s][k])
                assert_close(bench.server["models"][s, k], known[s][k])
