"""Holds pFedHN against its looped twin over two rounds with absent devices and lost payloads, its
server step against autograd, its start, and its views.
"""

from __future__ import annotations

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
    make_cohort,
    make_delivered_mask,
)
from twins import exchange, pfedhn
from twins.setting import mlp

from otafl.algorithms.personal.pfedhn import PFedHN
from otafl.core.contracts import Tensors

HYPER = {
    "learning_rate": [0.3, 0.1],
    "server_learning_rate": [0.5, 0.2],
    "embedding_learning_rate": [0.3, 0.6],
}
SETTINGS = PFedHN.Settings(embedding=3, hidden=(7, 6))
LAYERS = range(3)

pytestmark = pytest.mark.exact


def twin_of(server: Tensors, s: int) -> pfedhn.Hypernetwork:
    return pfedhn.Hypernetwork(
        [server[f"hyper_weight{layer}"][s].numpy().copy() for layer in LAYERS],
        [server[f"hyper_bias{layer}"][s].numpy().copy() for layer in LAYERS],
        [row.numpy().copy() for row in server["embedding"][s]],
    )


@pytest.mark.twin
def test_equals_the_looped_twin() -> None:
    bench = Bench(SETTINGS, mlp(WIDTHS), HYPER)
    nets = [twin_of(bench.server, s) for s in range(S)]
    for t, (who, lost) in enumerate(zip(WHO, LOST, strict=True)):
        cohort = make_cohort(who)
        came = make_delivered_mask(cohort, lost)
        batches = bench.draw_batches(cohort, t)
        bench.local(cohort, t)
        bench.combine(cohort, t, came)
        change: list[dict[int, np.ndarray]] = [{} for _ in range(S)]
        pairs = zip(cohort.trial.tolist(), cohort.device.tolist(), strict=True)
        for row, (s, k) in enumerate(pairs):
            theta = pfedhn.seen(nets[s], k)[-1]
            new, loss = exchange.sgd(theta, WIDTHS, batches[row], HYPER["learning_rate"][s])
            assert_close(bench.loss[row], np.array(loss))
            if came[row]:
                change[s][k] = new - theta
        for s in range(S):
            _, step, own_step = (values[s] for values in HYPER.values())
            nets[s] = pfedhn.server(nets[s], change[s], step, own_step)
            for layer in LAYERS:
                assert_close(bench.server[f"hyper_weight{layer}"][s], nets[s].weights[layer])
                assert_close(bench.server[f"hyper_bias{layer}"][s], nets[s].biases[layer])
            assert_close(bench.server["embedding"][s], np.stack(nets[s].embeddings))
    view = bench.method.build_views(bench.server, {})["personal"]
    assert view.owner == "device"
    for s in range(S):
        for k in range(K):  # absent ones too
            assert_close(view.params["model"][s * K + k], pfedhn.seen(nets[s], k)[-1])
