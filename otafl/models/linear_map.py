"""Products of rows with weights: of each row, shared by all rows, or without a dense form."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from otafl.models.geometry import Window


class LinearMap(Protocol):
    """Linear map that acts like a weight [n, M, N] without its dense form."""

    def forward(self, x: Tensor) -> Tensor:
        """Compute x W [n, B, N] for x [n, B, M]."""

    def backward(self, g: Tensor) -> Tensor:
        """Compute g W^T [n, B, M] for g [n, B, N]."""


@runtime_checkable
class KernelMap(Protocol):
    """Kernels of n convolutions without their dense form."""

    def convolve(self, image: Tensor, bias: Tensor, window: Window) -> Tensor:
        """Convolve images [B, n C, H, W], or [B, C, H, W] of all rows, to [B, n out, H', W']."""


def apply(weight: Tensor | LinearMap, x: Tensor) -> Tensor:
    """Compute x W.

    Parameters
    ----------
    weight : Tensor [n, M, N], Tensor [1, M, N], or LinearMap
        Weight of each row, or of all rows.
    x : Tensor [n, B, M], or [1, B, M]
        Inputs of each row, or of all rows.

    Returns
    -------
    Tensor [n, B, N]
        Outputs; [1, B, N] if both are shared by all rows. A shared weight multiplies the inputs of
        all rows in one product.
    """
    if not isinstance(weight, Tensor):
        return weight.forward(x)
    if weight.shape[0] == 1 and x.shape[0] > 1:
        return torch.matmul(x, weight[0])
    return torch.bmm(x.expand(weight.shape[0], -1, -1), weight)


def apply_transposed(weight: Tensor | LinearMap, g: Tensor) -> Tensor:
    """Compute g W^T.

    Parameters
    ----------
    weight : Tensor [n, M, N], Tensor [1, M, N], or LinearMap
        Weight of each row, or of all rows.
    g : Tensor [n, B, N]
        Gradients by the outputs.

    Returns
    -------
    Tensor [n, B, M]
        Gradients by the inputs.
    """
    if not isinstance(weight, Tensor):
        return weight.backward(g)
    if weight.shape[0] == 1 and g.shape[0] > 1:
        return torch.matmul(g, weight[0].mT)
    return torch.bmm(g, weight.mT)


def add_bias(z: Tensor, bias: Tensor) -> Tensor:
    """Add a bias [n or 1, N] to outputs z [n or 1, B, N], in place where z has all rows."""
    if bias.shape[0] > z.shape[0]:
        return z + bias[:, None]
    return z.add_(bias[:, None])
