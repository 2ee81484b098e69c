"""Say how models are kept while they are trained from minibatch to minibatch: the contracts of
`otafl.models.span`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from otafl.core.contracts import Batch, Tensors
from otafl.models.layered import Pair


class FormParams(NamedTuple):
    """Hold the parameters of n models. wide: the first layer's weight [n, M, N], None in the plain
    form. rest: [n, P] all others side by side."""

    rest: Tensor
    wide: Tensor | None


class InPlaceDifference(NamedTuple):
    """Hold the direction end - start, which is to be made in the place of start."""

    start: FormParams
    end: FormParams


Direction = FormParams | InPlaceDifference


class Gradient(NamedTuple):
    """Hold a gradient and the loss [n] where it was taken. grads: a pair for each layer (x, g), or
    in the plain form the gradient by each parameter. x: what the first layer saw."""

    loss: Tensor
    grads: list[Pair] | Tensors
    x: Tensor


class Span(ABC):
    """A span is the points around a model `origin` on one minibatch, rows [n, Q]."""

    origin: Tensor
    directions: list[Tensor]

    @abstractmethod
    def compute_second_gradient(self) -> Gradient:
        """Return the gradient at the origin on the minibatch beside."""

    @abstractmethod
    def compute_gradient(self, point: Tensor) -> Gradient:
        """Return the gradient of the loss at a point."""

    @abstractmethod
    def descend_(self, point: Tensor, slope: Gradient, step: Tensor) -> None:
        """Take point -= step [n] * gradient in place. A slope of another minibatch does as well,
        but such a point can be asked for its slope only, not be written."""

    @abstractmethod
    def write_each_(self, *writes: tuple[Tensor, FormParams]) -> None:
        """Write the models at points, each over its `out`: the origin's memory, some other, or, as
        the last that is written, that of the only direction."""

    def write_(self, point: Tensor, out: FormParams) -> None:
        """Write the model at a point over `out`: see `write_each_`."""
        self.write_each_((point, out))

    @abstractmethod
    def subtract_points(self, start: Tensor, end: Tensor) -> FormParams:
        """Return the difference end - start of two points in new memory."""


class Form(ABC):
    """A form is how the parameters of a model are kept while it is trained."""

    @abstractmethod
    def copy_params(self, params: Tensors) -> FormParams:
        """Copy the parameters into this form."""

    @abstractmethod
    def adopt_params(self, params: Tensors) -> FormParams:
        """Bring parameters that are not used otherwise into this form: their own memory, or a
        copy."""

    @abstractmethod
    def to_params(self, form_params: FormParams) -> Tensors:
        """Return the parameters by name: the same memory or a copy of it."""

    @abstractmethod
    def take_step_(self, form_params: FormParams, slope: Gradient, step: Tensor) -> None:
        """Take held -= step [n] * gradient in place, where points are not needed."""

    @abstractmethod
    def make_span(
        self,
        batch: Batch,
        origin: FormParams,
        *directions: Direction,
        second_batch: Batch | None = None,
    ) -> Span:
        """Return the span of a minibatch around a model.

        Parameters
        ----------
        origin : the model.
        directions : others that points can move along.
        second_batch : another minibatch, on which the gradient at the origin is wanted.
        """


def subtract_params(
    end: FormParams, start: FormParams, out: FormParams | None = None
) -> FormParams:
    """Return end - start in new memory or over `out`."""
    rest = torch.sub(end.rest, start.rest, out=None if out is None else out.rest)
    if end.wide is None or start.wide is None:
        return FormParams(rest, None)
    return FormParams(rest, torch.sub(end.wide, start.wide, out=None if out is None else out.wide))
