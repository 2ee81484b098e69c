"""FedRLR's coders of different layers and rounds, which `otafl.laws.linear_coding` does not have.

Every mean must lie within 4.5 standard errors of its law: false-alarm level 7e-6 a number compared.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from twins.setting import Quiet, everyone, mlp

from otafl.algorithms.fedrlr import FedRLR
from otafl.core.contracts import LocalContext, Tensors
from otafl.core.rng import Streams

pytestmark = pytest.mark.law

F64 = torch.float64
Z = 4.5


def assert_mean(samples: Tensor, law: Tensor | float) -> None:
    """The mean over the first dimension is the law's, by its own standard error."""
    error = samples.std(0) / len(samples) ** 0.5
    off = (samples.mean(0) - law).abs()
    assert (off <= Z * error + 1e-13).all(), (samples.mean(0), law, error)


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
            torch.testing.assert_close(f_u, f_v, rtol=0, atol=1e-13)
            layers.append(f_u.view(trials, devices, rank, rank))
        out.append(torch.stack(layers))
    return torch.stack(out)


@pytest.mark.parametrize("rank", [2, 4])
def test_moments_of_the_coder(rank: int) -> None:
    """Fact 8: entries +-1/sqrt(R); F F^T has a unit diagonal exactly, off it mean 0 and variance
    1/R; F_k F_j^T has mean 0 for two devices, layers or rounds. 6,000 pairs or more each."""
    f = coders(range(3), 1000, 2, rank)
    torch.testing.assert_close(f.abs(), torch.full_like(f, rank**-0.5), rtol=0, atol=1e-13)
    assert_mean(f.flatten(0, 3), 0.0)
    gram = (f @ f.mT).flatten(0, 3)
    diagonal = gram.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(diagonal, torch.ones_like(diagonal), rtol=0, atol=1e-12)
    row, column = torch.triu_indices(rank, rank, 1)
    assert_mean(gram[:, row, column], 0.0)
    assert_mean(gram[:, row, column].square(), 1 / rank)
    assert_mean((f[:, :, :, 0] @ f[:, :, :, 1].mT).flatten(0, 2), 0.0)
    assert_mean((f[:, 0] @ f[:, 1].mT).flatten(0, 2), 0.0)
    assert_mean((f[0] @ f[1].mT).flatten(0, 2), 0.0)
    assert_mean((f[:, :, 0::2] @ f[:, :, 1::2].mT).flatten(0, 3), 0.0)
