"""Layers of PyTorch with given parameters, of which modules of trained models consist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import Tensor, nn

NamedModules = Iterator[tuple[str, nn.Module]]
Layered = TypeVar("Layered", nn.Linear, nn.Conv2d)


def make_image_layers(shape: tuple[int, ...], image: tuple[int, int, int]) -> NamedModules:
    """Yield layers that reshape samples of any shape to images [channels, height, width]."""
    if shape == image:
        return
    if len(shape) > 1:
        yield "flatten", nn.Flatten()
    yield "image", nn.Unflatten(1, image)


def make_activation(slope: float) -> nn.Module:
    """Make the activation with a slope below zero."""
    return nn.LeakyReLU(slope) if slope else nn.ReLU()


def make_linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """Make a linear layer with a weight [outputs, inputs]."""
    outputs, inputs = weight.shape
    return _fill_params(nn.Linear(inputs, outputs, bias is not None, device="meta"), weight, bias)


def make_conv(
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    groups: int = 1,
) -> nn.Conv2d:
    """Make a convolution with given parameters.

    Parameters
    ----------
    weight : Tensor [outputs, inputs / groups, height, width]
        Weight, which is copied.
    bias : Tensor [outputs], or None
        Bias.
    stride, padding : tuple of int
        Steps and zeros along height and width.
    groups : int
        Number of groups.

    Returns
    -------
    torch.nn.Conv2d
        The convolution.
    """
    outputs, inputs, *kernel = weight.shape
    module = nn.Conv2d(
        inputs * groups,
        outputs,
        (kernel[0], kernel[1]),
        stride,
        padding,
        groups=groups,
        bias=bias is not None,
        device="meta",  # draws no start, so that torch's global random state stays
    )
    return _fill_params(module, weight, bias)


def _fill_params(module: Layered, weight: Tensor, bias: Tensor | None) -> Layered:
    """Set a layer's parameters to copies."""
    module.weight = nn.Parameter(weight.clone(memory_format=torch.contiguous_format))
    if bias is not None:
        module.bias = nn.Parameter(bias.clone())
    return module
