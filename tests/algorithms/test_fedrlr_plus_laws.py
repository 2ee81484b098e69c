"""What the uplink costs FedRLR+: the error of the server's step over the real uplink, against its
law.

A mean over 1,000 uplinks (200 in the fast test); the bound is 4 standard errors of the mean, a
false alarm in 16,000.
Mutations that must fail: GBMA's variation 1 - pi/4; weights not squared; the noise along V kept
(R^2 reals more); a receiver that does not correct E|h|; the weights left out of the payload.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from twins.linear_sum import GBMA_VARIATION, distortion
from twins.setting import everyone, local_data, mlp

from otafl import over_the_air
from otafl.algorithms.fedrlr_plus import FedRLRPlus
from otafl.core.contracts import Context, LocalContext, Received, Tensors
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank, dense
from otafl.models.base import flatten, unflatten

pytestmark = pytest.mark.law

F64 = torch.float64
K, WIDTHS = 5, (14, 9, 6)
SIZES = [[8, 11, 30, 16, 9]]


@pytest.mark.parametrize("uplinks", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_server_errs_by_fading_and_noise_in_the_tangent_space(uplinks: int) -> None:
    """GBMA at 0 dB a symbol: |Theta' - Theta'_exact|^2 is the law's, for steps so short that the
    retraction is the sum."""
    streams = Streams([5], [0], dtype=F64)
    algorithm = FedRLRPlus(FedRLRPlus.Settings(rank=3), mlp(WIDTHS), K)
    size = torch.tensor(SIZES, dtype=F64)
    cohort = everyone(size / size.sum(1, keepdim=True))
    hyper = {
        "learning_rate": torch.tensor([1e-3], dtype=F64),
        "decay": torch.zeros(1, dtype=F64),
        "server_learning_rate": torch.ones(1, dtype=F64),
        "momentum": torch.zeros(1, dtype=F64),
    }
    server, _ = algorithm.init(streams, hyper)
    data = local_data(SIZES, WIDTHS[0], WIDTHS[-1], streams, 4, 2)
    broadcast = algorithm.broadcast(server, cohort).rows(cohort, 0, K)
    context = LocalContext(cohort, hyper, streams, 0, data.work(0, cohort))
    _, (group,), _ = algorithm.local(broadcast, {}, context)
    x = flatten(group.blocks)
    shapes = {name: tuple(block.shape[1:]) for name, block in group.blocks.items()}
    exact = step(algorithm, server, (cohort.weight[:, None] * x).sum(0)[None], shapes, hyper)
    means, noise = [], 0.0
    for t in range(uplinks):
        mean, report = over_the_air(x, power="gbma", snr_db=0.0, weights=cohort.weight, round=t)
        means.append(mean)
        assert isinstance(report.eta, float)
        noise += 0.5 / (report.eta * K**2) / uplinks  # sigma^2 / 2 over the receive scaling
    error = squared(step(algorithm, server, torch.stack(means), shapes, hyper), exact)
    reals = sum(3 * (m + 1 + n - 3) for m, n in itertools.pairwise(WIDTHS))
    law = distortion(x.square().sum(1)[None], cohort.weight[None], reals, noise, GBMA_VARIATION)
    found = error / law
    assert abs(float(found.mean()) - 1) < 4 * float(found.std()) / uplinks**0.5


def step(
    algorithm: FedRLRPlus, server: Tensors, mean: Tensor, shapes: dict, hyper: dict[str, Tensor]
) -> list[Tensor]:
    """The dense model after the server's step from received means [n, P]."""
    n = len(mean)
    copies = {name: block.expand(n, *block.shape[1:]) for name, block in server.items()}
    wide = {name: value.expand(n) for name, value in hyper.items()}
    received = Received((unflatten(mean, shapes),), (torch.ones(n, dtype=F64),), None, None)
    cohort = everyone(torch.full((1, K), 1 / K, dtype=F64))
    context = Context(cohort, wide, Streams([0], [0], dtype=F64), 0)
    out = algorithm.combine(copies, received, context)
    return [
        dense(LowRank(out[f"u{i}"], out[f"s{i}"], out[f"v{i}"])) for i in range(len(WIDTHS) - 1)
    ]


def squared(one: list[Tensor], other: list[Tensor]) -> Tensor:
    return torch.stack([(a - b).square().sum((1, 2)) for a, b in zip(one, other, strict=True)]).sum(
        0
    )
