"""FedRLR's local steps on convolutional networks against dense ones."""

from __future__ import annotations

import pytest
import torch
from support.cnn_bench import CLASSES, F64, B, compute_torch_scores, make_cnn
from torch.nn import functional
from twins import fedrlr as twin
from twins.setting import everyone, local_data

from otafl.algorithms.low_rank.fedrlr import FedRLR
from otafl.core.contracts import LocalContext, Tensors
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank, to_dense

pytestmark = pytest.mark.twin


@pytest.mark.parametrize("steps", [1, 3])
def test_fedrlrs_steps_are_the_dense_ones(steps: int) -> None:
    """Tangent steps and retractions at every layer of the devices' own models, a rank for each,
    against autograd's dense gradient, projected, and the SVD's best approximation."""
    case, devices = "a kernel of three", 2
    model = make_cnn(case)
    streams = Streams([3], [0], dtype=F64)
    settings = FedRLR.Settings(rank=(2, 3, 4, 2), inv_k_gradient=False)
    algorithm = FedRLR(settings, model, devices)
    cohort = everyone(torch.full((1, devices), 1 / devices, dtype=F64))
    hyper = {
        name: torch.tensor([value], dtype=F64)
        for name, value in {"q": 2.0, "nu": 10.0, "c1": 0.3, "mu": 3.0}.items()
    }
    server, _ = algorithm.init(streams, hyper)
    start, _ = FedRLR(settings, model, devices).init(Streams([4], [1], dtype=F64), hyper)
    own = {
        name: block.repeat(devices, *[1] * (block.dim() - 1)) for name, block in start.items()
    }  # Theta_k, another point than Theta_0
    data = local_data([[40, 50]], 64, CLASSES, streams, B, steps)
    thetas, biases = [], []
    eta, penalty = 0.2, 0.3
    for row in range(devices):
        theta = [to_dense(_point(start, i))[0] for i in range(4)]
        anchor = [to_dense(_point(server, i))[0] for i in range(4)]
        bias = [start[f"b{i}"][0] for i in range(4)]
        work = data.select_cohort(0, cohort)
        for step in range(steps):
            batch = work.draw_batch(step)
            w = [one.clone().requires_grad_() for one in theta]
            b = [one.clone().requires_grad_() for one in bias]
            scores = compute_torch_scores(case, w, b, batch.x[row])
            grads = torch.autograd.grad(functional.cross_entropy(scores, batch.y[row]), w + b)
            for i, rank in enumerate((2, 3, 4, 2)):
                delta = eta * grads[i] + penalty * (theta[i] - anchor[i])
                u, _, v = twin.svd_r(theta[i].numpy(), rank)
                moved = theta[i].numpy() - twin.project(u, v, delta.numpy())
                theta[i] = torch.from_numpy(twin.nearest(moved, rank))
                pull = penalty * (bias[i] - server[f"b{i}"][0])
                bias[i] = bias[i] - eta * grads[4 + i] - pull
        thetas.append(theta)
        biases.append(bias)
    broadcast = algorithm.broadcast(server, cohort).expand_rows(cohort, 0, devices)
    context = LocalContext(cohort, hyper, streams, 0, data.select_cohort(0, cohort))
    state, _, _ = algorithm.run_local_update(broadcast, own, context)
    for i in range(4):
        moved = to_dense(_point(state, i))
        for row in range(devices):
            torch.testing.assert_close(moved[row], thetas[row][i], rtol=0, atol=1e-8)
            torch.testing.assert_close(state[f"b{i}"][row], biases[row][i], rtol=0, atol=1e-8)
            assert (moved[row] - to_dense(_point(start, i))[0]).abs().max() > 1e-3


def _point(blocks: Tensors, layer: int) -> LowRank:
    return LowRank(blocks[f"u{layer}"], blocks[f"s{layer}"], blocks[f"v{layer}"])
