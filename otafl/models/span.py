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
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otafl.core.contracts import Batch, Tensors
from otafl.models.base import Model, descend_, flatten, unflatten
from otafl.models.layered import NARROW, LayeredModel, Pair
from otafl.models.layers import Linear


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


def subtract_params(
    end: FormParams, start: FormParams, out: FormParams | None = None
) -> FormParams:
    """Compute end - start in new memory or in `out`."""
    rest = torch.sub(end.rest, start.rest, out=None if out is None else out.rest)
    if end.wide is None or start.wide is None:
        return FormParams(rest, None)
    return FormParams(rest, torch.sub(end.wide, start.wide, out=None if out is None else out.wide))


class PlainForm:
    """Form of any model: all parameters side by side, with gradients as the model computes them.

    Parameters
    ----------
    model : Model
        Model.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def copy_params(self, params: Tensors) -> FormParams:
        """Copy parameters into this form."""
        flat = flatten(params)
        return FormParams(flat.clone() if len(params) == 1 else flat, None)

    def adopt_params(self, params: Tensors) -> FormParams:
        """Bring parameters without other use into this form, with or without a copy."""
        return FormParams(flatten(params), None)

    def to_params(self, form_params: FormParams) -> Tensors:
        """Return the parameters by name, the same memory or a copy."""
        parts = unflatten(form_params.rest, self.model.shapes)
        return {name: part.contiguous() for name, part in parts.items()}

    def take_step_(self, form_params: FormParams, slope: Gradient, step: Tensor) -> None:
        """Take form_params -= step [n] * gradient in place, if no points are needed."""
        assert isinstance(slope.grads, dict)
        descend_(unflatten(form_params.rest, self.model.shapes), slope.grads, step)

    def make_span(
        self,
        batch: Batch,
        origin: FormParams,
        *directions: FormParams,
        second_batch: Batch | None = None,
    ) -> PlainSpan:
        """Make the span of a minibatch around a model.

        Parameters
        ----------
        batch : Batch
            Minibatch of each row.
        origin : FormParams
            Model.
        directions : FormParams
            Directions along which points can move.
        second_batch : Batch, optional
            Another minibatch, for a gradient at the origin.

        Returns
        -------
        PlainSpan or MinibatchSpan
            The span.
        """
        return PlainSpan(self, batch, origin, directions, second_batch)


class PlainSpan:
    """Points [n, P] around the model `origin` on one minibatch, which are parameters."""

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
        """Compute the gradient of the loss at a point."""
        return self._compute_gradient(point, self._batch)

    def compute_second_gradient(self) -> Gradient:
        """Compute the gradient at the origin on the second minibatch."""
        assert self._second_batch is not None
        return self._compute_gradient(self.origin, self._second_batch)

    def _compute_gradient(self, point: Tensor, batch: Batch) -> Gradient:
        model = self._form.model
        loss, grads = model.compute_gradients(unflatten(point, model.shapes), batch)
        return Gradient(loss, grads, batch.x)

    def descend_(self, point: Tensor, slope: Gradient, step: Tensor) -> None:
        """Take point -= step [n] * gradient in place.

        A gradient of another minibatch is possible. At such a point only gradients can be computed;
        it cannot be written.
        """
        self._form.take_step_(FormParams(point, None), slope, step)

    def write_(self, point: Tensor, out: FormParams) -> None:
        """Write the model at a point to `out`.

        It is the origin's memory, other memory, or, in the last call, that of the only direction.
        """
        out.rest.copy_(point)

    def subtract_points(self, start: Tensor, end: Tensor) -> FormParams:
        """Compute the difference end - start of two points in new memory."""
        return FormParams(end - start, None)


class SpanForm:
    """Form of a layered model whose first layer is fully connected, as `PlainForm`.

    It is faster if a minibatch has fewer samples than twice the layer's inputs. The weight of a
    narrow layer is transposed in memory, as `LayeredModel` trains it.

    Parameters
    ----------
    model : LayeredModel
        Model.
    """

    def __init__(self, model: LayeredModel) -> None:
        self.model = model
        self.first, *self.others = model.layers
        self.shapes = {n: shape for n, shape in model.shapes.items() if n != self.first.weight}
        self.width = sum(math.prod(shape) for shape in self.shapes.values())
        self._is_narrow = self.first.outputs <= NARROW

    def copy_params(self, params: Tensors) -> FormParams:
        rest, wide = flatten({n: params[n] for n in self.shapes}), params[self.first.weight]
        rest = rest.clone() if len(self.shapes) == 1 else rest
        dense = torch.contiguous_format
        if self._is_narrow:
            return FormParams(rest, wide.mT.clone(memory_format=dense).mT)
        return FormParams(rest, wide.clone(memory_format=dense))

    def adopt_params(self, params: Tensors) -> FormParams:
        rest, wide = flatten({n: params[n] for n in self.shapes}), params[self.first.weight]
        return FormParams(rest, wide.mT.contiguous().mT if self._is_narrow else wide.contiguous())

    def to_params(self, form_params: FormParams) -> Tensors:
        parts = unflatten(form_params.rest, self.shapes)
        return {
            name: (
                _get_wide(form_params) if name == self.first.weight else parts[name]
            ).contiguous()
            for name in self.model.shapes
        }

    def take_step_(self, form_params: FormParams, slope: Gradient, step: Tensor) -> None:
        by_first = self.descend_rest_(unflatten(form_params.rest, self.shapes), slope, step)
        _add_product_(_get_wide(form_params), slope.x, by_first, -1.0)

    def make_span(
        self,
        batch: Batch,
        origin: FormParams,
        *directions: FormParams,
        second_batch: Batch | None = None,
    ) -> MinibatchSpan:
        return MinibatchSpan(self, batch, origin, directions, second_batch)

    def descend_rest_(self, parts: Tensors, slope: Gradient, step: Tensor) -> Tensor:
        """Take a step -= step [n] * gradient of all parameters except the first layer's weight.

        Returns step * g [n, B, N] of the first layer.
        """
        assert isinstance(slope.grads, list)
        by_first = slope.grads[0].g * step[:, None, None]
        parts[self.first.bias].sub_(by_first.sum(1))
        for layer, (x, g) in zip(self.others, slope.grads[1:], strict=True):
            along = g * step[:, None, None]
            # baddbmm_ loops over the rows of a view; few outputs are faster as the first side
            parts[layer.weight].sub_(torch.bmm(along.mT, x).mT)
            parts[layer.bias].sub_(along.sum(1))
        return by_first


class _Scores:
    """Weight of the first layer, of which only z = x W is known."""

    def __init__(self, z: Tensor) -> None:
        self.z = z

    def forward(self, x: Tensor) -> Tensor:
        return self.z.clone()  # its caller adds the bias in place

    def backward(self, g: Tensor) -> Tensor:
        raise NotImplementedError("the first layer has no gradient by its input")


class _Parts(NamedTuple):
    """Views of a point: rest [n, P], z and H [n, B, N], c [n, J]."""

    rest: Tensor
    z: Tensor
    h: Tensor
    c: Tensor


class MinibatchSpan:
    """Span whose points are [rest | z | H | c], with Q = P + 2 B N + J, as `PlainSpan`."""

    def __init__(
        self,
        form: SpanForm,
        batch: Batch,
        origin: FormParams,
        directions: Sequence[FormParams],
        second_batch: Batch | None,
    ) -> None:
        self._form, self._batch, self._form_params = form, batch, origin
        self._directions, self._second_batch = directions, second_batch
        # of the point in the origin's memory after a write
        self._origin_parts: _Parts | None = None
        self._last_evaluated: tuple[Tensor, _Parts, Tensors] | None = None
        self.x = batch.x.flatten(2)
        self._scores = (self.x.shape[1], form.first.outputs)
        size = math.prod(self._scores)
        self._parts = [form.width, size, size, len(directions)]
        self.origin = self._to_row(origin)
        self.directions = [self._to_row(held, place) for place, held in enumerate(directions)]
        if second_batch is not None:
            self._second_x = second_batch.x.flatten(2)
            self._second_z = torch.bmm(self._second_x, _get_wide(origin))

    def _to_row(self, known: FormParams, direction_index: int | None = None) -> Tensor:
        """Return a known model, or the direction of this index, as a row."""
        z = torch.bmm(self.x, _get_wide(known)).flatten(1)
        c = z.new_zeros(len(z), len(self._directions))
        if direction_index is not None:
            c[:, direction_index] = 1.0
        return torch.cat([known.rest, z, torch.zeros_like(z), c], 1)

    def _split(self, point: Tensor) -> _Parts:
        """Split a point into its parts."""
        rest, z, h, c = point.split(self._parts, 1)
        return _Parts(rest, z.unflatten(1, self._scores), h.unflatten(1, self._scores), c)

    def _evaluate_point(self, point: Tensor) -> tuple[_Parts, Tensors]:
        """Return the parts of a point, and the parameters in `rest`.

        Those of the last point are kept, because a solver moves one point in place.
        """
        if self._last_evaluated is None or self._last_evaluated[0] is not point:
            parts = self._split(point)
            self._last_evaluated = point, parts, unflatten(parts.rest, self._form.shapes)
        return self._last_evaluated[1:]

    @functools.cached_property
    def _gram(self) -> Tensor:
        """The Gram matrix [n, B, B] of the samples."""
        return torch.bmm(self.x, self.x.mT)

    def compute_gradient(self, point: Tensor) -> Gradient:
        parts, rest = self._evaluate_point(point)
        return self._compute_gradient(rest, parts.z, self._batch, self.x)

    def compute_second_gradient(self) -> Gradient:
        assert self._second_batch is not None
        rest = unflatten(self._form_params.rest, self._form.shapes)
        return self._compute_gradient(rest, self._second_z, self._second_batch, self._second_x)

    def _compute_gradient(self, rest: Tensors, z: Tensor, batch: Batch, x: Tensor) -> Gradient:
        params: dict[str, Any] = {**rest, self._form.first.weight: _Scores(z)}
        loss, pairs = self._form.model.compute_pairs(params, batch)
        return Gradient(loss, pairs, x)

    def descend_(self, point: Tensor, slope: Gradient, step: Tensor) -> None:
        parts, rest = self._evaluate_point(point)
        by_first = self._form.descend_rest_(rest, slope, step)
        if slope.x is self.x:
            parts.h.sub_(by_first)
            parts.z.sub_(torch.bmm(self._gram, by_first))
        else:
            parts.z.sub_(torch.bmm(torch.bmm(self.x, slope.x.mT), by_first))

    def write_(self, point: Tensor, out: FormParams) -> None:
        rest, _, h, c = self._split(point)
        out.rest.copy_(rest)
        if self._origin_parts is not None:
            h, c = h - self._origin_parts.h, c - self._origin_parts.c
        to, now = _get_wide(out), _get_wide(self._form_params)
        if to is now:
            self._origin_parts = self._split(point)
        for place, held in enumerate(self._directions):
            now = torch.addcmul(now, _get_wide(held), c[:, place, None, None], out=to)
        if now is not to:
            to.copy_(now)
        _add_product_(to, self.x, h, 1.0)

    def subtract_points(self, start: Tensor, end: Tensor) -> FormParams:
        rest, _, h, c = self._split(end - start)
        wide = torch.bmm(self.x.mT, h)
        for place, held in enumerate(self._directions):
            wide.addcmul_(_get_wide(held), c[:, place, None, None])
        return FormParams(rest, wide)


Form = PlainForm | SpanForm
Span = PlainSpan | MinibatchSpan


def _get_wide(form_params: FormParams) -> Tensor:
    """Return the weight of the first layer."""
    assert form_params.wide is not None
    return form_params.wide


def _add_product_(wide: Tensor, x: Tensor, h: Tensor, share: float) -> None:
    """Add share x^T h to a weight, as it lies in memory; baddbmm_ loops over the rows of a view."""
    if wide.is_contiguous():
        wide.baddbmm_(x.mT, h, alpha=share)
    else:
        wide.mT.baddbmm_(h.mT, x, alpha=share)


def choose_form(model: Model) -> Form:
    """Return the suitable form of a model."""
    if isinstance(model, LayeredModel) and not model.scores_positions:
        first = model.layers[0]
        if isinstance(first, Linear) and model.shapes.get(first.weight) == first.shape:
            return SpanForm(model)
    return PlainForm(model)
