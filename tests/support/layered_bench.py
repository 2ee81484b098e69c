"""Chains of layers, parameters and minibatches for the tests of models, with factored weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from otafl.core.contracts import Batch, Tensors
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank, LowRankMap, to_dense
from otafl.models import LayeredModel, Model

F64 = torch.float64
N, B, WIDTHS = 3, 5, (6, 8, 7, 4)
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-12}


def draw_uniform(name: str, shape: tuple[int, ...]) -> Tensor:
    """Draw a start of N trials."""
    return Streams([4] * N, list(range(N)), dtype=F64).draw_uniform(f"init/{name}", 0, shape)


def draw_params(model: Model) -> Tensors:
    """Standard normal over sqrt(3), biases too."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.randn(N, *shape, generator=generator, dtype=F64) / 3**0.5
        for name, shape in model.shapes.items()
    }


def draw_batch(weighted: bool) -> Batch:
    """Long vectors of standard normal numbers, some of weight 0."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(N, B, WIDTHS[0], generator=generator, dtype=F64)
    y = torch.randint(0, WIDTHS[-1], (N, B), generator=generator)
    weight = None
    if weighted:
        weight = torch.rand(N, B, generator=generator, dtype=F64)
        weight[1, 3:] = 0.0
        weight /= weight.sum(1, keepdim=True)
    return Batch(x, y, weight)


def factorise(
    model: LayeredModel, full: Tensors, rank: int, seed: int
) -> tuple[dict[str, Any], Tensors]:
    """The same model with factored and with dense weights, of at most a rank; other parameters as
    in `full`."""
    generator = torch.Generator().manual_seed(seed)
    thin: dict[str, Any] = dict(full)
    full = dict(full)
    for layer in model.layers:
        r = min(rank, layer.inputs, layer.outputs)
        u, v = (
            torch.linalg.qr(torch.randn(N, side, r, generator=generator, dtype=F64))[0]
            for side in (layer.inputs, layer.outputs)
        )
        s = torch.rand(N, r, generator=generator, dtype=F64) + 1.0
        point = LowRank(u, s, v)
        thin[layer.weight], full[layer.weight] = LowRankMap(point), to_dense(point)
    return thin, full
