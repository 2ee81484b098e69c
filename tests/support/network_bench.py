"""A network of every kind of step, and what its tests share."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.models.base import Model
from otafl.models.layer_contract import Layer
from otafl.models.layer_lists import Residual
from otafl.models.layers import Conv, Linear, MaxPool, Norm, Relu

F64 = torch.float64
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-12}
BOTH = pytest.mark.parametrize("unroll", ["vertical_first", "horizontal_first"])
N, B = 3, 4

STEPS: tuple[Layer, ...] = (
    Conv("a", 2, 6, stride=2, cut=False),
    Norm("b", 6),
    Relu(),
    Residual(
        (Conv("c", 6, 4), Norm("d", 4), Relu(), Conv("e", 4, 5, 5, padding=2)),
        (Conv("f", 6, 5, 1, padding=0),),
    ),
    MaxPool(2),
    Linear("g", 5, 7, 6),
    Relu(),
    Linear("h", 7, 3, last=True),
)
IMAGE = (2, 11, 9)


def draw_normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def draw_params(network: Model, rows: int = N) -> Tensors:
    """Normal parameters, the larger the layer the smaller."""
    return {
        name: draw_normal(rows, *shape, seed=number) / math.sqrt(shape[-1])
        for number, (name, shape) in enumerate(network.shapes.items())
    }
