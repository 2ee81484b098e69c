"""Layers of PyTorch with given parameters, of which modules of trained models consist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

Params = Mapping[str, Tensor]


class Part(NamedTuple):
    """One of the matrices or kernels that act one after the other in place of a weight.

    Parameters
    ----------
    weight : Tensor [outputs, inputs], or [outputs, inputs / groups, height, width]
        Matrix or kernel.
    stride, padding : tuple of int
        Steps and zeros of a kernel along height and width.
    groups : int
        Number of groups of channels.
    """

    weight: Tensor
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    groups: int = 1


class Sum(nn.Module):
    """Module of body(x) + shortcut(x)."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x) + self.shortcut(x)
        return out


def make_sequence(parts: Sequence[Part], bias: Tensor | None) -> nn.Module:
    """Make the layers of parts, the last with the bias; a sequence if there are several."""
    modules = [_make_layer(part, None) for part in parts[:-1]] + [_make_layer(parts[-1], bias)]
    return nn.Sequential(*modules) if len(modules) > 1 else modules[0]


def make_activation(slope: float) -> nn.Module:
    """Make the activation with a slope below zero."""
    return nn.LeakyReLU(slope) if slope else nn.ReLU()


def _make_layer(part: Part, bias: Tensor | None) -> nn.Module:
    """Make a linear layer or a convolution with copies of parameters."""
    outputs, inputs, *kernel = part.weight.shape
    module: nn.Linear | nn.Conv2d
    if kernel:
        module = nn.Conv2d(
            inputs * part.groups,
            outputs,
            (kernel[0], kernel[1]),
            part.stride,
            part.padding,
            groups=part.groups,
            bias=bias is not None,
            device="meta",  # draws no start, so that torch's global random state stays
        )
    else:
        module = nn.Linear(inputs, outputs, bias is not None, device="meta")
    module.weight = nn.Parameter(part.weight.clone(memory_format=torch.contiguous_format))
    if bias is not None:
        module.bias = nn.Parameter(bias.clone())
    return module
