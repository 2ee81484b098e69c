"""Models in the span of a minibatch's gradients, the fast form of `otafl.models.span`."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otafl.core.contracts import Batch, Tensors
from otafl.models.base import Model, flatten, unflatten
from otafl.models.layered import LayeredModel
from otafl.models.span import (
    Direction,
    Form,
    FormParams,
    Gradient,
    InPlaceDifference,
    PlainForm,
    Span,
)

TILE_BYTES = 2 << 20
"""Bytes of the whole weights of a tile, which should fit the cache of a core."""


class SpanForm(Form):
    """Form of a layered model whose first layer is fully connected.

    It is faster if a minibatch has fewer samples than twice the layer's inputs.

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

    def copy_params(self, params: Tensors) -> FormParams:
        rest, wide = self.adopt_params(params)
        assert wide is not None
        if wide is params[self.first.weight]:
            wide = wide.clone()
        return FormParams(rest.clone() if len(self.shapes) == 1 else rest, wide)

    def adopt_params(self, params: Tensors) -> FormParams:
        rest = flatten({name: params[name] for name in self.shapes})
        return FormParams(rest, params[self.first.weight].contiguous())

    def to_params(self, form_params: FormParams) -> Tensors:
        assert form_params.wide is not None
        parts = unflatten(form_params.rest, self.shapes)
        return {
            name: form_params.wide if name == self.first.weight else parts[name].contiguous()
            for name in self.model.shapes
        }

    def take_step_(self, form_params: FormParams, slope: Gradient, step: Tensor) -> None:
        by_first = self.descend_rest_(unflatten(form_params.rest, self.shapes), slope, step)
        _get_wide(form_params).baddbmm_(slope.x.mT, by_first, alpha=-1.0)

    def make_span(
        self,
        batch: Batch,
        origin: FormParams,
        *directions: Direction,
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


class MinibatchSpan(Span):
    """Span whose points are [rest | z | H | c], with Q = P + 2 B N + J."""

    def __init__(
        self,
        form: SpanForm,
        batch: Batch,
        origin: FormParams,
        directions: Sequence[Direction],
        second_batch: Batch | None,
    ) -> None:
        self._form, self._batch, self._form_params, self._second_batch = (
            form,
            batch,
            origin,
            second_batch,
        )
        self._directions = [d.start if isinstance(d, InPlaceDifference) else d for d in directions]
        self._origin_parts: _Parts | None = (
            None  # of the point in the origin's memory after a write
        )
        self._last_evaluated: tuple[Tensor, _Parts, Tensors] | None = None
        self.x = batch.x.flatten(2)
        self._scores = (self.x.shape[1], form.first.outputs)
        size = math.prod(self._scores)
        self._parts = [form.width, size, size, len(directions)]
        self._multiply_minibatch(directions)

    def _multiply_minibatch(self, directions: Sequence[Direction]) -> None:
        """Compute every product of a minibatch with a whole weight."""
        wide = _get_wide(self._form_params)
        n, outputs = len(wide), self._form.first.outputs
        looks = [(self.x, wide), *((self.x, _get_wide(held)) for held in self._directions)]
        if self._second_batch is not None:
            looks.append((self._second_batch.x.flatten(2), wide))
        z = [x.new_empty(n, x.shape[1], outputs) for x, _ in looks]
        apart = [d for d in directions if isinstance(d, InPlaceDifference)]
        for rows in _split_tiles(wide, len(looks)):
            for start, end in apart:
                torch.sub(_get_wide(end)[rows], _get_wide(start)[rows], out=_get_wide(start)[rows])
            for (x, weight), out in zip(looks, z, strict=True):
                torch.bmm(x[rows], weight[rows], out=out[rows])
        for start, end in apart:
            torch.sub(end.rest, start.rest, out=start.rest)
        self.origin = self._to_row(self._form_params.rest, z[0])
        self.directions = [
            self._to_row(held.rest, z[place + 1], place)
            for place, held in enumerate(self._directions)
        ]
        self._second_z = z[-1]

    def _to_row(self, rest: Tensor, z: Tensor, direction_index: int | None = None) -> Tensor:
        """Return a known model, or the direction of this index, as a row."""
        z = z.flatten(1)
        c = z.new_zeros(len(z), len(self._directions))
        if direction_index is not None:
            c[:, direction_index] = 1.0
        return torch.cat([rest, z, torch.zeros_like(z), c], 1)

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
        return self._compute_gradient(
            rest, self._second_z, self._second_batch, self._second_batch.x.flatten(2)
        )

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

    def write_each_(self, *writes: tuple[Tensor, FormParams]) -> None:
        wide, moves = _get_wide(self._form_params), []
        for point, out in writes:
            rest, _, h, c = self._split(point)
            out.rest.copy_(rest)
            if self._origin_parts is not None:
                h, c = h - self._origin_parts.h, c - self._origin_parts.c
            moves.append((_get_wide(out), h, c))
            if moves[-1][0] is wide:
                self._origin_parts = self._split(point)
        for rows in _split_tiles(wide, len(self._directions) + len(writes)):
            for to, h, c in moves:
                now, over = wide[rows], to[rows]
                for place, held in enumerate(self._directions):
                    along = _get_wide(held)[rows]
                    now = torch.addcmul(now, along, c[rows, place, None, None], out=over)
                if now is not over and to is not wide:
                    over.copy_(now)
                over.baddbmm_(self.x[rows].mT, h[rows])

    def subtract_points(self, start: Tensor, end: Tensor) -> FormParams:
        rest, _, h, c = self._split(end - start)
        wide = torch.bmm(self.x.mT, h)
        for place, held in enumerate(self._directions):
            wide.addcmul_(_get_wide(held), c[:, place, None, None])
        return FormParams(rest, wide)


def _get_wide(form_params: FormParams) -> Tensor:
    """Return the weight of the first layer."""
    assert form_params.wide is not None
    return form_params.wide


def _split_tiles(wide: Tensor, count: int) -> list[slice]:
    """Split the rows of several weights [n, M, N] into slices that fit the cache of a processor."""
    rows = len(wide)
    if wide.device.type == "cpu":
        rows = max(1, TILE_BYTES // (count * wide[0].numel() * wide.element_size()))
    return [slice(start, start + rows) for start in range(0, len(wide), rows)]


def choose_form(model: Model) -> Form:
    """Return the suitable form of a model."""
    if isinstance(model, LayeredModel) and not model.scores_positions:
        first = model.layers[0]
        if first.window is None and model.shapes.get(first.weight) == (first.inputs, first.outputs):
            return SpanForm(model)
    return PlainForm(model)
