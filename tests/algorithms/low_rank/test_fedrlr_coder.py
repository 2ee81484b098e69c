"""FedRLR's coders differ by layer and round."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from twins.setting import Quiet, everyone, mlp

from otafl.algorithms.low_rank.fedrlr import FedRLR
from otafl.core.contracts import LocalContext, Tensors
from otafl.core.rng import Streams

pytestmark = pytest.mark.exact

F64 = torch.float64


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
