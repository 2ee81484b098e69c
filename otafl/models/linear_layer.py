"""A linear layer, its start and products, and settings of models of such layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.models.base import Draw, ModelSettings
from otafl.models.geometry import Window

LEAKY_SLOPE = 0.1
"""Slope of leaky ReLU below zero (Shi et al. 2023, PRIOR)."""

BiasStart = Literal["zero", "uniform"]
"""Start of biases."""


class ActivationSettings(ModelSettings):
    """Settings that models of linear layers share."""

    activation: Literal["relu", "leaky_relu"] = "relu"
    """activation after each layer except the last; leaky_relu has the slope 0.1 below zero"""
    bias_start: BiasStart = "zero"
    """start of biases: zero, or uniform in +-1/sqrt(fan_in) as in PyTorch"""

    @property
    def slope(self) -> float:
        """The slope of the activation below zero."""
        return LEAKY_SLOPE if self.activation == "leaky_relu" else 0.0


class DropoutSettings(ActivationSettings):
    """Settings of models with hidden fully connected layers."""

    dropout: float = Field(0.0, ge=0, lt=1)
    """probability with which a training step sets an output of a hidden fully connected layer to 0;
    no dropout if 0"""


@dataclass(frozen=True)
class Layer:
    """Linear layer y = x W + b with W [inputs, outputs].

    With a window it is a convolution: linear in the k k C numbers of the window at a position, with
    the same weight and bias at all positions.

    Parameters
    ----------
    weight, bias : str
        Names of the parameters.
    inputs, outputs : int
        Sides of the weight.
    window : Window, optional
        Sizes of a convolution.
    """

    weight: str
    bias: str
    inputs: int
    outputs: int
    window: Window | None = None

    @property
    def positions(self) -> int:
        """The number of products with the weight for one sample."""
        return 1 if self.window is None else self.window.positions

    @property
    def macs(self) -> int:
        """The number of MACs for one sample."""
        return self.positions * self.inputs * self.outputs

    @property
    def elementwise(self) -> int:
        """The number of operations of bias, pooling and activation for one sample."""
        if self.window is None:
            return 2 * self.outputs
        pooling = self.positions if self.window.pool > 1 else 0
        return (self.positions + pooling + self.window.features) * self.outputs


def number_layers(
    sides: Iterable[tuple[int, int]], windows: Sequence[Window] = ()
) -> tuple[Layer, ...]:
    """Make layers "weight0", "bias0", ... of given sides.

    Parameters
    ----------
    sides : iterable of tuple of int
        (inputs, outputs) of each layer.
    windows : sequence of Window
        Windows of the first layers, which are convolutions.

    Returns
    -------
    tuple of Layer
        Layers.
    """
    return tuple(
        Layer(f"weight{i}", f"bias{i}", *one, windows[i] if i < len(windows) else None)
        for i, one in enumerate(sides)
    )


def draw_uniform_start(layers: Sequence[Layer], draw: Draw, bias: BiasStart = "zero") -> Tensors:
    """Draw weights uniform in +-1/sqrt(fan_in).

    Parameters
    ----------
    layers : sequence of Layer
        Layers.
    draw : Draw
        Source of uniform numbers.
    bias : {"zero", "uniform"}
        Start of biases, zero or uniform in the same range.

    Returns
    -------
    dict of str to Tensor [S, *shape]
        Parameters.
    """
    params = {}
    for layer in layers:
        uniform = draw(layer.weight, (layer.inputs, layer.outputs))
        params[layer.weight] = (2.0 * uniform - 1.0) / layer.inputs**0.5
        if bias == "zero":
            params[layer.bias] = uniform.new_zeros(uniform.shape[0], layer.outputs)
        else:
            uniform = draw(layer.bias, (layer.outputs,))
            params[layer.bias] = (2.0 * uniform - 1.0) / layer.inputs**0.5
    return params


def parse_layers(description: Mapping[str, Any]) -> list[Layer]:
    """Make layers from the result of `LayeredModel.describe`."""
    out = []
    for one in description["layers"]:
        window = one["window"]
        out.append(Layer(**one | {"window": None if window is None else Window(**window)}))
    return out


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
