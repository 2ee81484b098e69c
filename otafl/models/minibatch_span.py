"""Keep models in the span of a minibatch's gradients: the quick form of `otafl.models.span`."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otafl.core.contracts import Batch, Tensors
from otafl.models.base import flatten, unflatten
from otafl.models.held import Direction, Form, Held, Slope, Span, Towards
from otafl.models.layered import LayeredModel

TILE_BYTES = 2 << 20
"""Size of the whole weights that are worked on at a time; they should fit the cache of a core."""


class Spanned(Form):
    """Keeps a layered model whose first layer is fully connected. (This is of use while a minibatch
    has fewer samples than twice the layer's inputs.)"""

    def __init__(self, model: LayeredModel) -> None:
        self.model = model
        self.first, *self.others = model.layers
        self.shapes = {n: shape for n, shape in model.shapes.items() if n != self.first.weight}
        self.width = sum(math.prod(shape) for shape in self.shapes.values())

    def hold(self, params: Tensors) -> Held:
        rest, wide = self.take(params)
        assert wide is not None
        if wide is params[self.first.weight]:
            wide = wide.clone()
        return Held(rest.clone() if len(self.shapes) == 1 else rest, wide)

    def take(self, params: Tensors) -> Held:
        rest = flatten({name: params[name] for name in self.shapes})
        return Held(rest, params[self.first.weight].contiguous())

    def blocks(self, held: Held) -> Tensors:
        assert held.wide is not None
        parts = unflatten(held.rest, self.shapes)
        return {
            name: held.wide if name == self.first.weight else parts[name].contiguous()
            for name in self.model.shapes
        }

    def step_(self, held: Held, slope: Slope, step: Tensor) -> None:
        by_first = self.descend_rest_(unflatten(held.rest, self.shapes), slope, step)
        _wide(held).baddbmm_(slope.x.mT, by_first, alpha=-1.0)

    def span(
        self, batch: Batch, origin: Held, *directions: Direction, beside: Batch | None = None
    ) -> MinibatchSpan:
        return MinibatchSpan(self, batch, origin, directions, beside)

    def descend_rest_(self, parts: Tensors, slope: Slope, step: Tensor) -> Tensor:
        """Take a step -= step [n] * gradient of all parameters but the first layer's weight; return
        step * g [n, B, N] of the first layer."""
        assert isinstance(slope.by, list)
        by_first = slope.by[0].g * step[:, None, None]
        parts[self.first.bias].sub_(by_first.sum(1))
        for layer, (x, g) in zip(self.others, slope.by[1:], strict=True):
            along = g * step[:, None, None]
            # baddbmm_ would loop over the rows of a view; few outputs are quicker in front
            parts[layer.weight].sub_(torch.bmm(along.mT, x).mT)
            parts[layer.bias].sub_(along.sum(1))
        return by_first


class _Scores:
    """Stands for the first layer's weight, of which only z = x W is known."""

    def __init__(self, z: Tensor) -> None:
        self.z = z

    def forward(self, x: Tensor) -> Tensor:
        return self.z.clone()  # its caller adds the bias in place

    def backward(self, g: Tensor) -> Tensor:
        raise NotImplementedError("nothing is before the first layer")


class _Parts(NamedTuple):
    """Hold views of a point: rest [n, P], z and H [n, B, N], c [n, J]."""

    rest: Tensor
    z: Tensor
    h: Tensor
    c: Tensor


class MinibatchSpan(Span):
    """A point of this span is [rest | z | H | c], Q = P + 2 B N + J."""

    def __init__(
        self,
        form: Spanned,
        batch: Batch,
        origin: Held,
        directions: Sequence[Direction],
        beside: Batch | None,
    ) -> None:
        self._form, self._batch, self._held, self._beside = form, batch, origin, beside
        self._directions = [d.start if isinstance(d, Towards) else d for d in directions]
        self._origin_parts: _Parts | None = (
            None  # of the point that the origin's memory holds after a write
        )
        self._looked_at: tuple[Tensor, _Parts, Tensors] | None = None
        self.x = batch.x.flatten(2)
        self._scores = (self.x.shape[1], form.first.outputs)
        size = math.prod(self._scores)
        self._parts = [form.width, size, size, len(directions)]
        self._meet(directions)

    def _meet(self, directions: Sequence[Direction]) -> None:
        """Compute every product of a minibatch with a whole weight."""
        wide = _wide(self._held)
        n, outputs = len(wide), self._form.first.outputs
        looks = [(self.x, wide), *((self.x, _wide(held)) for held in self._directions)]
        if self._beside is not None:
            looks.append((self._beside.x.flatten(2), wide))
        z = [x.new_empty(n, x.shape[1], outputs) for x, _ in looks]
        apart = [d for d in directions if isinstance(d, Towards)]
        for rows in _tiles(wide, len(looks)):
            for start, end in apart:
                torch.sub(_wide(end)[rows], _wide(start)[rows], out=_wide(start)[rows])
            for (x, weight), out in zip(looks, z, strict=True):
                torch.bmm(x[rows], weight[rows], out=out[rows])
        for start, end in apart:
            torch.sub(end.rest, start.rest, out=start.rest)
        self.origin = self._row(self._held.rest, z[0])
        self.directions = [
            self._row(held.rest, z[place + 1], place) for place, held in enumerate(self._directions)
        ]
        self._z_beside = z[-1]

    def _row(self, rest: Tensor, z: Tensor, place: int | None = None) -> Tensor:
        """Return a known model, or direction number `place`, as a row."""
        z = z.flatten(1)
        c = z.new_zeros(len(z), len(self._directions))
        if place is not None:
            c[:, place] = 1.0
        return torch.cat([rest, z, torch.zeros_like(z), c], 1)

    def _split(self, point: Tensor) -> _Parts:
        rest, z, h, c = point.split(self._parts, 1)
        return _Parts(rest, z.unflatten(1, self._scores), h.unflatten(1, self._scores), c)

    def _look(self, point: Tensor) -> tuple[_Parts, Tensors]:
        """Return the parts of a point, and the parameters in `rest`. Those of the last point are
        kept: a solver steps one point in place."""
        if self._looked_at is None or self._looked_at[0] is not point:
            parts = self._split(point)
            self._looked_at = point, parts, unflatten(parts.rest, self._form.shapes)
        return self._looked_at[1:]

    @functools.cached_property
    def _gram(self) -> Tensor:
        return torch.bmm(self.x, self.x.mT)

    def slope(self, point: Tensor) -> Slope:
        parts, rest = self._look(point)
        return self._slope(rest, parts.z, self._batch, self.x)

    def slope_beside(self) -> Slope:
        assert self._beside is not None
        rest = unflatten(self._held.rest, self._form.shapes)
        return self._slope(rest, self._z_beside, self._beside, self._beside.x.flatten(2))

    def _slope(self, rest: Tensors, z: Tensor, batch: Batch, x: Tensor) -> Slope:
        params: dict[str, Any] = {**rest, self._form.first.weight: _Scores(z)}
        loss, pairs = self._form.model.pairs(params, batch)
        return Slope(loss, pairs, x)

    def descend_(self, point: Tensor, slope: Slope, step: Tensor) -> None:
        parts, rest = self._look(point)
        by_first = self._form.descend_rest_(rest, slope, step)
        if slope.x is self.x:
            parts.h.sub_(by_first)
            parts.z.sub_(torch.bmm(self._gram, by_first))
        else:
            parts.z.sub_(torch.bmm(torch.bmm(self.x, slope.x.mT), by_first))

    def write_each_(self, *writes: tuple[Tensor, Held]) -> None:
        wide, moves = _wide(self._held), []
        for point, out in writes:
            rest, _, h, c = self._split(point)
            out.rest.copy_(rest)
            if self._origin_parts is not None:
                h, c = h - self._origin_parts.h, c - self._origin_parts.c
            moves.append((_wide(out), h, c))
            if moves[-1][0] is wide:
                self._origin_parts = self._split(point)
        for rows in _tiles(wide, len(self._directions) + len(writes)):
            for to, h, c in moves:
                now, over = wide[rows], to[rows]
                for place, held in enumerate(self._directions):
                    along = _wide(held)[rows]
                    now = torch.addcmul(now, along, c[rows, place, None, None], out=over)
                if now is not over and to is not wide:
                    over.copy_(now)
                over.baddbmm_(self.x[rows].mT, h[rows])

    def between(self, start: Tensor, end: Tensor) -> Held:
        rest, _, h, c = self._split(end - start)
        wide = torch.bmm(self.x.mT, h)
        for place, held in enumerate(self._directions):
            wide.addcmul_(_wide(held), c[:, place, None, None])
        return Held(rest, wide)


def _wide(held: Held) -> Tensor:
    assert held.wide is not None
    return held.wide


def _tiles(wide: Tensor, count: int) -> list[slice]:
    """Cut the rows of so many weights [n, M, N] into slices that fit the cache of a processor."""
    rows = len(wide)
    if wide.device.type == "cpu":
        rows = max(1, TILE_BYTES // (count * wide[0].numel() * wide.element_size()))
    return [slice(start, start + rows) for start in range(0, len(wide), rows)]
