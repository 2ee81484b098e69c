"""How models are kept while they are trained from minibatch to minibatch: the vocabulary of
`otafl.models.span`."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from otafl.core.contracts import Batch, Blocks
from otafl.models.base import Pair


class Held(NamedTuple):
    """Parameters of n models. wide: the first layer's weight [n, M, N], None in the plain form.
    rest: [n, P] all others side by side."""

    rest: Tensor
    wide: Tensor | None


class Towards(NamedTuple):
    """The direction end - start, to be made in the place of start."""

    start: Held
    end: Held


Direction = Held | Towards


class Slope(NamedTuple):
    """A gradient and the loss [n] where it was taken. by: a pair for each layer (x, g), or in the
    plain form the gradient by each parameter. x: what the first layer saw."""

    loss: Tensor
    by: list[Pair] | Blocks
    x: Tensor


class Span(Protocol):
    """The points around a model `origin` on one minibatch. All rows [n, Q]."""

    origin: Tensor
    directions: list[Tensor]

    def slope_beside(self) -> Slope:
        """The gradient at the origin on the minibatch beside."""

    def slope(self, point: Tensor) -> Slope:
        """Cross-entropy's gradient at a point."""

    def descend_(self, point: Tensor, slope: Slope, step: Tensor) -> None:
        """point -= step [n] * gradient, in place. A slope of another minibatch does as well, but
        such a point can be asked for its slope only, not be written."""

    def write_(self, point: Tensor, out: Held) -> None:
        """The model at a point, over `out`: see `write_each_`."""

    def write_each_(self, *writes: tuple[Tensor, Held]) -> None:
        """The models at points, each over its `out`: the origin's memory, some other, or, as the
        last that is written, that of the only direction."""

    def between(self, start: Tensor, end: Tensor) -> Held:
        """The difference end - start of two points, in new memory."""


class Form(Protocol):
    """How the parameters of a model are kept while it is trained."""

    def hold(self, params: Blocks) -> Held:
        """A copy."""

    def take(self, params: Blocks) -> Held:
        """Of parameters that are not used otherwise: their own memory, or a copy."""

    def blocks(self, held: Held) -> Blocks:
        """The parameters by name: the same memory or a copy of it."""

    def step_(self, held: Held, slope: Slope, step: Tensor) -> None:
        """held -= step [n] * gradient, in place, where points are not needed."""

    def span(
        self, batch: Batch, origin: Held, *directions: Direction, beside: Batch | None = None
    ) -> Span:
        """beside: another minibatch, on which the gradient at the origin is wanted."""


def difference(end: Held, start: Held, out: Held | None = None) -> Held:
    """end - start, in new memory or over `out`."""
    rest = torch.sub(end.rest, start.rest, out=None if out is None else out.rest)
    if end.wide is None or start.wide is None:
        return Held(rest, None)
    return Held(rest, torch.sub(end.wide, start.wide, out=None if out is None else out.wide))
