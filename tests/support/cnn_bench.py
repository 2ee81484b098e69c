"""Convolutional networks of several kinds, and the same by torch's own layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from otafl.core.contracts import Batch, Tensors
from otafl.models import LayeredModel, Model
from otafl.models.cnn import Cnn
from otafl.models.linear_layer import LEAKY_SLOPE

F64 = torch.float64
N, B, CLASSES = 3, 4, 5
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-10}

CASES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "three layers, colour, odd sizes": (
        {"channels": (3, 4, 2), "kernel": 3, "hidden": (7,)},
        (2, 9, 8),
    ),
    "flat grey, default kernel": (
        {"channels": (2, 3), "hidden": (6, 5), "activation": "leaky_relu"},
        (64,),
    ),
    "valid, strided, no pooling, no hidden": (
        {"channels": (3, 2), "kernel": 2, "stride": 2, "padding": "valid", "pool": 1, "hidden": ()},
        (9, 11),
    ),
    "strided, padded, left-over edge": (
        {"channels": (3, 4), "kernel": 3, "stride": 2, "pool": 2, "hidden": (4,)},
        (3, 17, 20),
    ),
}
OF_CASES = pytest.mark.parametrize("case", CASES)


def make_cnn(case: str) -> Cnn:
    """The network of a case."""
    keys, shape = CASES[case]
    return Cnn(Cnn.Settings(**keys), shape, CLASSES)


def draw_params(model: Model, rows: int = N) -> Tensors:
    """Normal, of deviation one half."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.randn(rows, *shape, generator=generator, dtype=F64) / 2
        for name, shape in model.shapes.items()
    }


def draw_batch(case: str, weighted: bool = False) -> Batch:
    """Images of a case."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(N, B, *CASES[case][1], generator=generator, dtype=F64)
    y = torch.randint(0, CLASSES, (N, B), generator=generator)
    weight = None
    if weighted:
        weight = torch.rand(N, B, generator=generator, dtype=F64)
        weight /= weight.sum(1, keepdim=True)
    return Batch(x, y, weight)


def compute_torch_scores(
    case: str, weights: list[Tensor], biases: list[Tensor], x: Tensor
) -> Tensor:
    """Scores [B, classes] of one row by torch's own layers; weights [k k C, out]."""
    keys, shape = CASES[case]
    settings = Cnn.Settings(**keys)
    side = int(np.sqrt(shape[0]))
    c, h, w = {1: (1, side, side), 2: (1, *shape), 3: shape}[len(shape)]
    x = x.reshape(-1, c, h, w)
    slope = LEAKY_SLOPE if settings.activation == "leaky_relu" else 0.0
    count = len(settings.channels)
    for weight, bias in zip(weights[:count], biases[:count], strict=True):
        kernel = weight.view(settings.kernel, settings.kernel, x.shape[1], -1).permute(3, 2, 0, 1)
        pad = (settings.kernel - 1) // 2 if settings.padding == "same" else 0
        x = functional.conv2d(x, kernel, bias, stride=settings.stride, padding=pad)
        x = functional.max_pool2d(functional.leaky_relu(x, slope), settings.pool)
    x = x.permute(0, 2, 3, 1).flatten(1)
    for weight, bias in zip(weights[count:-1], biases[count:-1], strict=True):
        x = functional.leaky_relu(x @ weight + bias, slope)
    return x @ weights[-1] + biases[-1]


def make_leaves(
    model: LayeredModel, params: Tensors, row: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Weights and biases of a row, for autograd."""
    weights = [params[one.weight][row].clone().requires_grad_() for one in model.layers]
    return weights, [params[one.bias][row].clone().requires_grad_() for one in model.layers]
