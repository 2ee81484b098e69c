"""Contract of the layers of a network: parameters, forward pass, operations and module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

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
    """A parameter of a step.

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
        Size of the image after the last step.
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


class Step(ABC):
    """A step of a network."""

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

    def narrow(self, channels: Channels) -> Step:
        """Return the step with channels(c) instead of c hidden channels."""
        return self
