"""The random coding of FedRLR, and its steps at the layers of a convolutional network."""

from __future__ import annotations

import pytest
import torch
from support.cnn_bench import CLASSES, F64, B, compute_torch_scores, make_cnn
from torch import Tensor
from torch.nn import functional
from twins import fedrlr as twin
from twins.setting import Quiet, everyone, local_data, mlp

from otafl.algorithms.low_rank.fedrlr import FedRLR
from otafl.core.contracts import LocalContext, Tensors
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank, to_dense

pytestmark = pytest.mark.exact


def coders(rounds: range, trials: int, devices: int, rank: int) -> Tensor:
    """F of every (round, layer, trial, device), [rounds, 2, S, K, R, R], read from U F at U = V =
    Sigma = I; the one of V must be the same."""
    model = mlp((rank, rank, rank))
    algorithm = FedRLR(FedRLR.Settings(rank=rank), model, devices)
    cohort = everyone(torch.full((trials, devices), 1 / devices, dtype=F64))
    eye = torch.eye(rank, dtype=F64).expand(cohort.num_rows, rank, rank)
    own: Tensors = {}
    for i in range(2):
        own |= {f"u{i}": eye, f"s{i}": torch.ones(cohort.num_rows, rank, dtype=F64), f"v{i}": eye}
        own[f"b{i}"] = torch.zeros(cohort.num_rows, rank, dtype=F64)
    streams = Streams([5] * trials, list(range(trials)), dtype=F64)
    hyper = {name: torch.ones(trials, dtype=F64) for name in ("q", "nu", "mu")}
    hyper["c1"] = torch.zeros(trials, dtype=F64)
    server = {name: block[:trials] for name, block in own.items()}
    out = []
    for t in rounds:
        rows = algorithm.broadcast(server, cohort).expand_rows(cohort, 0, cohort.num_rows)
        context = LocalContext(cohort, hyper, streams, t, Quiet(cohort, rank, t))
        state, (factors, _), _ = algorithm.run_local_update(rows, dict(own), context)
        layers = []
        for i in range(2):
            f_u, f_v = (
                state[f"{side}{i}"].mT @ factors.tensors[f"{side}{i}"].mT * devices**0.5
                for side in "uv"
            )
            torch.testing.assert_close(f_u, f_v, rtol=0, atol=1e-12)
            layers.append(f_u.view(trials, devices, rank, rank))
        out.append(torch.stack(layers))
    return torch.stack(out)


def test_coders_of_layers_rounds_and_devices_differ() -> None:
    """Entries are +-1/sqrt(R), so that F F^T has a unit diagonal."""
    f = coders(range(3), 2, 2, 4)
    torch.testing.assert_close(f.abs(), torch.full_like(f, 0.5), rtol=0, atol=1e-12)
    diagonal = (f @ f.mT).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(diagonal, torch.ones_like(diagonal), rtol=0, atol=1e-12)
    signs = f.sign().flatten(0, 3).flatten(1)
    assert len(signs.unique(dim=0)) == len(signs) == 24


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
