"""Several gradient steps on the same samples without forming the first layer's weight.

All gradients of a fully connected first layer on one minibatch x [B, M] are x^T g with g [B, N]. A
model that is reached from W0 by such gradients, and by affine combinations with other known models
W0 + D_j, has

    W = W0 + sum_j c_j D_j + x^T H,        x W = x W0 + sum_j c_j x D_j + (x x^T) H

so only c [J], H [B, N] and the scores z = x W [B, N] need to be stored. The products x W0, x D_j
and the Gram matrix x x^T [B, B] are computed once. A gradient step then costs B B N multiplications
in the first layer instead of 2 B M N. One product of rank B forms W at the end. This is exact
except for rounding. `choose_form` chooses this form for a suitable first layer, and otherwise the
plain form, all parameters side by side. Both have the same interface:

    form = choose_form(model)
    w, theta = form.copy_params(params), form.copy_params(others)      # [n, ...]
    span = form.make_span(batch, w, subtract_params(theta, w))         # origin w, one direction
    point = torch.lerp(span.origin, span.origin + span.directions[0], t)   # rows [n, Q]
    slope = span.compute_gradient(point)                               # gradient and loss
    span.descend_(point, slope, step)                                  # point -= step * gradient
    span.write_(point, w)                                              # w is now the model
    params = form.to_params(w)

Points are rows [n, Q]. Any affine combination of points is a point, and so is a point plus any
combination of directions and differences of points.

Operations on a whole weight are done for a few rows at a time. So these stay in the processor's
cache from one product to the next (`InPlaceDifference` and `write_each_` serve this).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from otafl.core.contracts import Batch, Tensors
from otafl.models.base import Model, descend_, flatten, unflatten
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


class PlainForm(Form):
    """Form of any model: all parameters side by side, with gradients as the model computes them.

    Parameters
    ----------
    model : Model
        Model.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def copy_params(self, params: Tensors) -> FormParams:
        flat = flatten(params)
        return FormParams(flat.clone() if len(params) == 1 else flat, None)

    def adopt_params(self, params: Tensors) -> FormParams:
        return FormParams(flatten(params), None)

    def to_params(self, form_params: FormParams) -> Tensors:
        parts = unflatten(form_params.rest, self.model.shapes)
        return {name: part.contiguous() for name, part in parts.items()}

    def take_step_(self, form_params: FormParams, slope: Gradient, step: Tensor) -> None:
        assert isinstance(slope.grads, dict)
        descend_(unflatten(form_params.rest, self.model.shapes), slope.grads, step)

    def make_span(
        self,
        batch: Batch,
        origin: FormParams,
        *directions: Direction,
        second_batch: Batch | None = None,
    ) -> PlainSpan:
        return PlainSpan(self, batch, origin, [_materialise(d) for d in directions], second_batch)


class PlainSpan(Span):
    """Span whose points are the parameters [n, P]."""

    def __init__(
        self,
        form: PlainForm,
        batch: Batch,
        origin: FormParams,
        directions: Sequence[FormParams],
        second_batch: Batch | None,
    ) -> None:
        self._form, self._batch, self._second_batch = form, batch, second_batch
        self.origin = origin.rest
        self.directions = [held.rest for held in directions]

    def compute_gradient(self, point: Tensor) -> Gradient:
        return self._compute_gradient(point, self._batch)

    def compute_second_gradient(self) -> Gradient:
        assert self._second_batch is not None
        return self._compute_gradient(self.origin, self._second_batch)

    def _compute_gradient(self, point: Tensor, batch: Batch) -> Gradient:
        model = self._form.model
        loss, grads = model.compute_gradients(unflatten(point, model.shapes), batch)
        return Gradient(loss, grads, batch.x)

    def descend_(self, point: Tensor, slope: Gradient, step: Tensor) -> None:
        self._form.take_step_(FormParams(point, None), slope, step)

    def write_each_(self, *writes: tuple[Tensor, FormParams]) -> None:
        for point, out in writes:
            out.rest.copy_(point)

    def subtract_points(self, start: Tensor, end: Tensor) -> FormParams:
        return FormParams(end - start, None)


def _materialise(direction: Direction) -> FormParams:
    """Compute a difference in its memory, and return other directions as they are."""
    if isinstance(direction, InPlaceDifference):
        return subtract_params(direction.end, direction.start, out=direction.start)
    return direction
