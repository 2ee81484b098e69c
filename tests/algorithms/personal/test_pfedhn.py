"""Holds pFedHN against its looped twin over two rounds with absent devices and lost payloads, its
server step against autograd, its start, and its views.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
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
    make_received,
)
from twins import exchange, pfedhn
from twins.setting import mlp

from otafl.algorithms.personal.pfedhn import PFedHN
from otafl.core.contracts import Group, Tensors

HYPER = {
    "learning_rate": [0.3, 0.1],
    "server_learning_rate": [0.5, 0.2],
    "embedding_learning_rate": [0.3, 0.6],
}
SETTINGS = PFedHN.Settings(hidden=(7, 6))
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


def test_step_is_the_gradient_of_the_squared_distance() -> None:
    """Where one device of each trial takes part, phi and v_i go down |h(v_i; phi) - theta~_i|^2 /
    2."""
    bench = Bench(SETTINGS, mlp(WIDTHS), HYPER)
    cohort = make_cohort(([3], [1]))
    goal = torch.linspace(-1, 1, 2 * bench.model.num_params, dtype=torch.float64).view(2, -1)
    leaves = {name: block.clone().requires_grad_() for name, block in bench.server.items()}
    with torch.enable_grad():
        x = leaves["embedding"][[0, 1], [3, 1]][:, None]
        for layer in LAYERS:
            x = x @ leaves[f"hyper_weight{layer}"] + leaves[f"hyper_bias{layer}"][:, None]
            x = x.relu() if layer < 2 else x
        theta = x[:, 0]
        grads = torch.autograd.grad((theta - goal).square().sum() / 2, list(leaves.values()))
    sent = (Group({"model": goal - theta.detach()}),)
    arrived = make_received(sent, cohort, None)
    new = bench.method.update_server(bench.server, arrived, bench.make_context(cohort, 0))
    for (name, block), grad in zip(bench.server.items(), grads, strict=True):
        which = "embedding" if name == "embedding" else "server"
        step = bench.hyper[f"{which}_learning_rate"].view(-1, *[1] * (block.dim() - 1))
        torch.testing.assert_close(new[name], block - step * grad, rtol=0, atol=1e-13)
