"""Contracts of `otafl.models.span`: representations of parameters in training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from otafl.core.contracts import Batch, Tensors
from otafl.models.layered import Pair


class FormParams(NamedTuple):
    """Parameters of n models.

    Parameters
    ----------
    rest : Tensor [n, P]
        All parameters except `wide`, side by side.
    wide : Tensor [n, M, N], or None
        Weight of the first layer; None in the plain form.
    """

    rest: Tensor
    wide: Tensor | None


class InPlaceDifference(NamedTuple):
    """Direction end - start, to compute in the memory of start.

    Parameters
    ----------
    start, end : FormParams
        Models.
    """

    start: FormParams
    end: FormParams


Direction = FormParams | InPlaceDifference
"""Direction along which points of a span can move."""


class Gradient(NamedTuple):
    """Gradient at a point.

    Parameters
    ----------
    loss : Tensor [n]
        Loss at the point.
    grads : list of Pair, or dict of str to Tensor
        Factors (x, g) of each layer's gradient, or in the plain form the gradient of each
        parameter.
    x : Tensor
        Input of the first layer.
    """

    loss: Tensor
    grads: list[Pair] | Tensors
    x: Tensor


class Span(ABC):
    """Points [n, Q] around the model `origin` on one minibatch."""

    origin: Tensor
    directions: list[Tensor]

    @abstractmethod
    def compute_second_gradient(self) -> Gradient:
        """Compute the gradient at the origin on the second minibatch."""

    @abstractmethod
    def compute_gradient(self, point: Tensor) -> Gradient:
        """Compute the gradient of the loss at a point."""

    @abstractmethod
    def descend_(self, point: Tensor, slope: Gradient, step: Tensor) -> None:
        """Take point -= step [n] * gradient in place.

        A gradient of another minibatch is possible. At such a point only gradients can be computed;
        it cannot be written.
        """

    @abstractmethod
    def write_each_(self, *writes: tuple[Tensor, FormParams]) -> None:
        """Write the models at points, each to its `out`.

        An `out` is the origin's memory, other memory, or, for the last of the writes, that of the
        only direction.
        """

    def write_(self, point: Tensor, out: FormParams) -> None:
        """Write the model at a point to `out`, as `write_each_`."""
        self.write_each_((point, out))

    @abstractmethod
    def subtract_points(self, start: Tensor, end: Tensor) -> FormParams:
        """Compute the difference end - start of two points in new memory."""


class Form(ABC):
    """Representation of the parameters of a model in training."""

    @abstractmethod
    def copy_params(self, params: Tensors) -> FormParams:
        """Copy parameters into this representation."""

    @abstractmethod
    def adopt_params(self, params: Tensors) -> FormParams:
        """Bring parameters without other use into this representation, with or without a copy."""

    @abstractmethod
    def to_params(self, form_params: FormParams) -> Tensors:
        """Return the parameters by name, the same memory or a copy."""

    @abstractmethod
    def take_step_(self, form_params: FormParams, slope: Gradient, step: Tensor) -> None:
        """Take form_params -= step [n] * gradient in place, if no points are needed."""

    @abstractmethod
    def make_span(
        self,
        batch: Batch,
        origin: FormParams,
        *directions: Direction,
        second_batch: Batch | None = None,
    ) -> Span:
        """Make the span of a minibatch around a model.

        Parameters
        ----------
        batch : Batch
            Minibatch of each row.
        origin : FormParams
            Model.
        directions : FormParams or InPlaceDifference
            Directions along which points can move.
        second_batch : Batch, optional
            Another minibatch, for a gradient at the origin.

        Returns
        -------
        Span
            The span.
        """


def subtract_params(
    end: FormParams, start: FormParams, out: FormParams | None = None
) -> FormParams:
    """Compute end - start in new memory or in `out`."""
    rest = torch.sub(end.rest, start.rest, out=None if out is None else out.rest)
    if end.wide is None or start.wide is None:
        return FormParams(rest, None)
    return FormParams(rest, torch.sub(end.wide, start.wide, out=None if out is None else out.wide))
