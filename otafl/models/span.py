"""Models near a known one, seen through one minibatch: what several gradient steps on the same
samples cost when the first layer's weight is never formed.

All gradients of a fully connected first layer on one minibatch x [B, M] are x^T g with g [B, N]. So
whatever is reached from a model W0 by such gradients, and by affine combinations with other known
models W0 + D_j, is

    W = W0 + sum_j c_j D_j + x^T H,        x W = x W0 + sum_j c_j x D_j + (x x^T) H,

and only c [J], H [B, N] and the scores z = x W [B, N] have to be kept. With the products x W0, x
D_j and the Gram matrix x x^T [B, B] computed once, a gradient step costs B B N multiplications in
the first layer in place of 2 B M N; W is formed at the end, by one product of rank B. This is exact
but for rounding. `form_of` chooses it where a model's first layer suits, and otherwise the plain
form, all parameters side by side. Both are used alike:

    form = form_of(model)
    w, theta = form.hold(params), form.hold(others)         # copies, [n, ...]
    span = form.span(batch, w, difference(theta, w))        # origin w, directions theta - w, ...
    point = torch.lerp(span.origin, span.origin + span.directions[0], t)  # rows [n, Q] of numbers
    slope = span.slope(point)                               # gradient (in factors) and loss
    span.descend_(point, slope, step)                       # point -= step [n] * gradient
    span.write_(point, w)                                   # the model, in place of w
    params = form.blocks(w)

Points are rows [n, Q] to calculate with: any affine combination of points is a point, and a point
plus any combination of directions and differences of points.

What touches a whole weight is done for a few rows at a time, so that they stay in the processor's
cache from one product to the next (`Towards`, `beside` and `write_each_` are there for it).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from otafl.contracts import Batch, Blocks
from otafl.models.base import LayeredModel, Model, Pair, flatten, unflatten

_TILE_BYTES = 4 << 20


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

    def span(
        self, batch: Batch, origin: Held, *directions: Direction, beside: Batch | None = None
    ) -> Span:
        """beside: another minibatch, on which the gradient at the origin is wanted."""


def form_of(model: Model) -> Form:
    """The form that suits a model."""
    if isinstance(model, LayeredModel):
        first = model.layers[0]
        if first.window is None and model.shapes.get(first.weight) == (first.inputs, first.outputs):
            return Spanned(model)
    return Plain(model)


def difference(end: Held, start: Held, out: Held | None = None) -> Held:
    """end - start, in new memory or over `out`."""
    rest = torch.sub(end.rest, start.rest, out=None if out is None else out.rest)
    if end.wide is None or start.wide is None:
        return Held(rest, None)
    return Held(rest, torch.sub(end.wide, start.wide, out=None if out is None else out.wide))


def step_(held: Held, slope: Slope, step: Tensor, form: Form) -> None:
    """held -= step [n] * gradient, in place: for a minibatch whose span is not needed otherwise."""
    if held.wide is not None and isinstance(form, Spanned):
        by_first = form.descend_rest_(unflatten(held.rest, form.shapes), slope, step)
        held.wide.baddbmm_(slope.x.mT, by_first, alpha=-1.0)
    elif isinstance(form, Plain):
        form.descend_(held.rest, slope, step)


class Plain:
    """Any model: all parameters side by side, gradients as the model computes them."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def hold(self, params: Blocks) -> Held:
        flat = flatten(params)
        return Held(flat.clone() if len(params) == 1 else flat, None)

    def take(self, params: Blocks) -> Held:
        return Held(flatten(params), None)

    def blocks(self, held: Held) -> Blocks:
        parts = unflatten(held.rest, self.model.shapes)
        return {name: part.contiguous() for name, part in parts.items()}

    def span(
        self, batch: Batch, origin: Held, *directions: Direction, beside: Batch | None = None
    ) -> PlainSpan:
        return PlainSpan(self, batch, origin, [_made(d) for d in directions], beside)

    def descend_(self, rows: Tensor, slope: Slope, step: Tensor) -> None:
        """rows [n, P] -= step [n] * gradient."""
        assert isinstance(slope.by, dict)
        for name, part in unflatten(rows, self.model.shapes).items():
            part.addcmul_(slope.by[name], step.view(-1, *[1] * (part.dim() - 1)), value=-1.0)


class PlainSpan:
    """A point is the model itself, [n, P]."""

    def __init__(
        self,
        form: Plain,
        batch: Batch,
        origin: Held,
        directions: Sequence[Held],
        beside: Batch | None,
    ) -> None:
        self._form, self._batch, self._beside = form, batch, beside
        self.origin = origin.rest
        self.directions = [held.rest for held in directions]

    def slope(self, point: Tensor) -> Slope:
        return self._slope(point, self._batch)

    def slope_beside(self) -> Slope:
        assert self._beside is not None
        return self._slope(self.origin, self._beside)

    def _slope(self, point: Tensor, batch: Batch) -> Slope:
        model = self._form.model
        loss, grads = model.gradients(unflatten(point, model.shapes), batch)
        return Slope(loss, grads, batch.x)

    def descend_(self, point: Tensor, slope: Slope, step: Tensor) -> None:
        self._form.descend_(point, slope, step)

    def write_(self, point: Tensor, out: Held) -> None:
        out.rest.copy_(point)

    def write_each_(self, *writes: tuple[Tensor, Held]) -> None:
        for point, out in writes:
            self.write_(point, out)

    def between(self, start: Tensor, end: Tensor) -> Held:
        return Held(end - start, None)


class Spanned:
    """A layered model whose first layer is fully connected. (Of use while a minibatch has fewer
    samples than twice the layer's inputs.)"""

    def __init__(self, model: LayeredModel) -> None:
        self.model = model
        self.first, *self.others = model.layers
        self.shapes = {n: shape for n, shape in model.shapes.items() if n != self.first.weight}
        self.width = sum(math.prod(shape) for shape in self.shapes.values())

    def hold(self, params: Blocks) -> Held:
        rest, wide = self.take(params)
        assert wide is not None
        if wide is params[self.first.weight]:
            wide = wide.clone()
        return Held(rest.clone() if len(self.shapes) == 1 else rest, wide)

    def take(self, params: Blocks) -> Held:
        rest = flatten({name: params[name] for name in self.shapes})
        return Held(rest, params[self.first.weight].contiguous())

    def blocks(self, held: Held) -> Blocks:
        assert held.wide is not None
        parts = unflatten(held.rest, self.shapes)
        return {
            name: held.wide if name == self.first.weight else parts[name].contiguous()
            for name in self.model.shapes
        }

    def span(
        self, batch: Batch, origin: Held, *directions: Direction, beside: Batch | None = None
    ) -> MinibatchSpan:
        return MinibatchSpan(self, batch, origin, directions, beside)

    def descend_rest_(self, parts: Blocks, slope: Slope, step: Tensor) -> Tensor:
        """All parameters but the first layer's weight -= step [n] * gradient; returns step * g
        [n, B, N] of the first layer."""
        pairs = _pairs(slope)
        by_first = _scaled(pairs[0].g, step)
        parts[self.first.bias].sub_(by_first.sum(1))
        for layer, (x, g) in zip(self.others, pairs[1:], strict=True):
            along = _scaled(g, step)
            # baddbmm_ would loop over the rows of a view; few outputs are quicker in front
            parts[layer.weight].sub_(torch.bmm(along.mT, x).mT)
            parts[layer.bias].sub_(along.sum(1))
        return by_first


class _Scores:
    """The first layer's weight, of which only z = x W is known."""

    def __init__(self, z: Tensor) -> None:
        self.z = z

    def forward(self, x: Tensor) -> Tensor:
        return self.z.clone()  # its caller adds the bias in place

    def backward(self, g: Tensor) -> Tensor:
        raise NotImplementedError("nothing is before the first layer")


class _Parts(NamedTuple):
    """Views of a point: rest [n, P], z and H [n, B, N], c [n, J]."""

    rest: Tensor
    z: Tensor
    h: Tensor
    c: Tensor


class MinibatchSpan:
    """A point is [rest | z | H | c], Q = P + 2 B N + J: see the top of this file."""

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
        self._at: _Parts | None = None  # of the point that the origin's memory holds after a write
        self._looked_at: tuple[Tensor, _Parts, Blocks] | None = None
        self.x = batch.x.flatten(2)
        self._scores = (self.x.shape[1], form.first.outputs)
        size = math.prod(self._scores)
        self._parts = [form.width, size, size, len(directions)]
        self._meet(directions)

    def _meet(self, directions: Sequence[Direction]) -> None:
        """Every product of a minibatch with a whole weight."""
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
        """A known model, or direction number `place`, as a row."""
        z = z.flatten(1)
        c = z.new_zeros(len(z), len(self._directions))
        if place is not None:
            c[:, place] = 1.0
        return torch.cat([rest, z, torch.zeros_like(z), c], 1)

    def _split(self, point: Tensor) -> _Parts:
        rest, z, h, c = point.split(self._parts, 1)
        return _Parts(rest, z.unflatten(1, self._scores), h.unflatten(1, self._scores), c)

    def _look(self, point: Tensor) -> tuple[_Parts, Blocks]:
        """The parts of a point, and the parameters in `rest`. Those of the last point are kept: a
        solver steps one point in place."""
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

    def _slope(self, rest: Blocks, z: Tensor, batch: Batch, x: Tensor) -> Slope:
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

    def write_(self, point: Tensor, out: Held) -> None:
        self.write_each_((point, out))

    def write_each_(self, *writes: tuple[Tensor, Held]) -> None:
        wide, moves = _wide(self._held), []
        for point, out in writes:
            rest, _, h, c = self._split(point)
            out.rest.copy_(rest)
            if self._at is not None:
                h, c = h - self._at.h, c - self._at.c
            moves.append((_wide(out), h, c))
            if moves[-1][0] is wide:
                self._at = self._split(point)
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


def _made(direction: Direction) -> Held:
    if isinstance(direction, Towards):
        return difference(direction.end, direction.start, out=direction.start)
    return direction


def _wide(held: Held) -> Tensor:
    assert held.wide is not None
    return held.wide


def _tiles(wide: Tensor, count: int) -> list[slice]:
    """The rows of so many weights [n, M, N], as many at a time as fit the cache of a processor."""
    rows = len(wide)
    if wide.device.type == "cpu":
        rows = max(1, _TILE_BYTES // (count * wide[0].numel() * wide.element_size()))
    return [slice(start, start + rows) for start in range(0, len(wide), rows)]


def _pairs(slope: Slope) -> list[Pair]:
    assert isinstance(slope.by, list)
    return slope.by


def _scaled(g: Tensor, step: Tensor) -> Tensor:
    return g * step[:, None, None]
