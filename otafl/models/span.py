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

from collections.abc import Sequence

from torch import Tensor

from otafl.core.contracts import Batch, Tensors
from otafl.models.base import Model, descend_, flatten, unflatten
from otafl.models.forms import (
    Direction,
    Form,
    FormParams,
    Gradient,
    InPlaceDifference,
    Span,
    subtract_params,
)
from otafl.models.layered import LayeredModel
from otafl.models.minibatch_span import SpanForm

__all__ = [
    "Direction",
    "Form",
    "FormParams",
    "Gradient",
    "InPlaceDifference",
    "PlainForm",
    "Span",
    "SpanForm",
    "choose_form",
    "subtract_params",
]


def choose_form(model: Model) -> Form:
    """Return the suitable form of a model."""
    if isinstance(model, LayeredModel) and not model.scores_positions:
        first = model.layers[0]
        if first.window is None and model.shapes.get(first.weight) == (first.inputs, first.outputs):
            return SpanForm(model)
    return PlainForm(model)


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
