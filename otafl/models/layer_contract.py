"""Contract of the layers of a network, and the kernels and modules of their weights.

A low-rank convolution is two convolutions with nothing between them (FedHM, section 2.2): its
kernel W [out, in, k1, k2], as the matrix of `unroll_weight`, is L R. First come the kernels of R,
then those of L.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from otafl.core.contracts import Tensors

Unroll = Literal["vertical_first", "horizontal_first"]
"""Order of the windows of a low-rank convolution."""
Image = tuple[int, int, int]
"""Channels, height and width of an image."""
Channels = Callable[[int], int]
"""Function of a layer's number of channels that returns how many a narrower network has."""


class Axis(NamedTuple):
    """Axis of a parameter that follows a layer's channels.

    Parameters
    ----------
    channels : int
        Number of channels.
    repeat : int
        Entries of each channel, the pixels of a flattened image.
    """

    channels: int
    repeat: int = 1


class Parameter(NamedTuple):
    """A parameter of a layer.

    Parameters
    ----------
    name : str
        Name.
    shape : tuple of int
        Shape in one row.
    axes : tuple of Axis or None
        Channels of each axis; None if it does not follow hidden channels.
    centre, bound : float
        The start is uniform in centre +- bound.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[Axis | None, ...]
    centre: float = 0.0
    bound: float = 0.0


class Costs(NamedTuple):
    """Costs of one sample.

    Parameters
    ----------
    image : tuple of int
        Size of the image after the last layer.
    products : tuple of int
        Multiply-accumulate operations of each product with a weight.
    first_macs : int
        Those whose input depends on no parameter.
    elementwise : int
        Other operations of a forward pass.
    saved_activations : int
        Numbers that a training step keeps.
    """

    image: Image
    products: tuple[int, ...] = ()
    first_macs: int = 0
    elementwise: int = 0
    saved_activations: int = 0

    @property
    def macs(self) -> int:
        """The multiply-accumulate operations of convolutions and linear layers."""
        return sum(self.products)


@dataclass(frozen=True)
class Pass:
    """Forward pass of n rows.

    Parameters
    ----------
    params : mapping of str to Tensor [n, *shape]
        Parameters, and the statistics of batch normalisations if they are known.
    unroll : {"vertical_first", "horizontal_first"}
        Order in which a kernel becomes the matrix of low-rank factors.
    scale : float
        Divisor of the outputs of convolutions.
    training : bool
        Whether batch normalisation uses the statistics of the minibatch.
    present : Tensor, bool [n, B], optional
        Samples that are not padding; all if not given.
    found : dict of str to Tensor, optional
        Destination of the statistics of batch normalisations.
    """

    params: Mapping[str, Any]
    unroll: Unroll = "vertical_first"
    scale: float = 1.0
    training: bool = False
    present: Tensor | None = None
    found: Tensors | None = None

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(next(iter(self.params.values())).shape[0])


class Layer(ABC):
    """A layer of a network.

    A new one is a class in `layers.py`. One that normalises is also told in `Network`. A
    `LayeredModel` takes only what `make_chain` builds.
    """

    @abstractmethod
    def run(self, x: Tensor, now: Pass) -> Tensor:
        """Compute outputs [B, n C', H', W'] of images [B, n C, H, W], or those of vectors."""

    @abstractmethod
    def count(self, image: Image, unroll: Unroll) -> Costs:
        """Count the costs of one image; `count_costs` adds what the image after it takes."""

    @abstractmethod
    def build_module(self, params: Mapping[str, Tensor], unroll: Unroll, flat: bool) -> nn.Module:
        """Build the module with parameters [*shape] of one row, after a linear layer if flat."""

    def list_parameters(self) -> Iterator[Parameter]:
        """List the parameters, in their order."""
        return iter(())

    def narrow(self, channels: Channels) -> Layer:
        """Return the layer with channels(c) instead of c hidden channels."""
        return self


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


def to_kernels(left: Tensor, right: Tensor, k: int, unroll: Unroll) -> tuple[Tensor, Tensor]:
    """Return the two kernels of a low-rank convolution.

    Parameters
    ----------
    left : Tensor [n, out k, r]
        Left factor.
    right : Tensor [n, r, in k]
        Right factor.
    k : int
        Side of the window.
    unroll : {"vertical_first", "horizontal_first"}
        Order of the windows.

    Returns
    -------
    Tensor [n, r, in, k, 1]
        First kernels, [n, r, in, 1, k] for horizontal_first.
    Tensor [n, out, r, 1, k]
        Second kernels, [n, out, r, k, 1] for horizontal_first.
    """
    n, _, r = left.shape
    first = right.view(n, r, -1, k)
    second = left.view(n, -1, k, r).transpose(2, 3)
    if unroll == "vertical_first":
        return first[..., None], second[..., None, :]
    return first[..., None, :], second[..., None]


def unroll_weight(weight: Tensor, unroll: Unroll) -> Tensor:
    """Reshape a layer's weight to matrices.

    Parameters
    ----------
    weight : Tensor [n, out, in, k1, k2], or [n, in, out]
        Weight of a convolution or a linear layer.
    unroll : {"vertical_first", "horizontal_first"}
        Order of the windows.

    Returns
    -------
    Tensor [n, out k, in k], or [n, out, in]
        Matrices with rows (out, k2) and columns (in, k1); k1 and k2 exchanged for horizontal_first.
    """
    if weight.dim() < 5:  # one leading dimension
        return weight.mT
    n, out, inputs, k, _ = weight.shape
    order = (0, 1, 4, 2, 3) if unroll == "vertical_first" else (0, 1, 3, 2, 4)
    return weight.permute(order).reshape(n, out * k, inputs * k)


def roll_weight(matrix: Tensor, shape: Sequence[int], unroll: Unroll) -> Tensor:
    """Reshape matrices to a layer's weight, inverting `unroll_weight`.

    Parameters
    ----------
    matrix : Tensor [n, out k, in k], or [n, out, in]
        Matrices.
    shape : sequence of int
        Shape of the weight.
    unroll : {"vertical_first", "horizontal_first"}
        Order of the windows.

    Returns
    -------
    Tensor [n, *shape]
        Weight.
    """
    if len(shape) < 4:
        return matrix.mT
    out, inputs, k, _ = shape
    parts = matrix.reshape(-1, out, k, inputs, k)
    order = (0, 1, 3, 4, 2) if unroll == "vertical_first" else (0, 1, 3, 2, 4)
    return parts.permute(order).contiguous()
