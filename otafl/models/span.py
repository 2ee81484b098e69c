"""Take several gradient steps on the same samples without forming the first layer's weight.

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

from collections.abc import Sequence

from torch import Tensor

from otafl.core.contracts import Batch, Tensors
from otafl.models.base import Model, descend_, flatten, unflatten
from otafl.models.held import Direction, Form, Held, Slope, Span, Towards, difference
from otafl.models.layered import LayeredModel
from otafl.models.minibatch_span import Spanned

__all__ = [
    "Direction",
    "Form",
    "Held",
    "Plain",
    "Slope",
    "Span",
    "Spanned",
    "Towards",
    "difference",
    "form_of",
]


def form_of(model: Model) -> Form:
    """Return the form that suits a model."""
    if isinstance(model, LayeredModel):
        first = model.layers[0]
        if first.window is None and model.shapes.get(first.weight) == (first.inputs, first.outputs):
            return Spanned(model)
    return Plain(model)


class Plain(Form):
    """Keeps all parameters of any model side by side, with gradients as the model computes them."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def hold(self, params: Tensors) -> Held:
        flat = flatten(params)
        return Held(flat.clone() if len(params) == 1 else flat, None)

    def take(self, params: Tensors) -> Held:
        return Held(flatten(params), None)

    def blocks(self, held: Held) -> Tensors:
        parts = unflatten(held.rest, self.model.shapes)
        return {name: part.contiguous() for name, part in parts.items()}

    def step_(self, held: Held, slope: Slope, step: Tensor) -> None:
        assert isinstance(slope.by, dict)
        descend_(unflatten(held.rest, self.model.shapes), slope.by, step)

    def span(
        self, batch: Batch, origin: Held, *directions: Direction, beside: Batch | None = None
    ) -> PlainSpan:
        return PlainSpan(self, batch, origin, [_made(d) for d in directions], beside)


class PlainSpan(Span):
    """A point of this span is the model itself, [n, P]."""

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
        self._form.step_(Held(point, None), slope, step)

    def write_each_(self, *writes: tuple[Tensor, Held]) -> None:
        for point, out in writes:
            out.rest.copy_(point)

    def between(self, start: Tensor, end: Tensor) -> Held:
        return Held(end - start, None)


def _made(direction: Direction) -> Held:
    if isinstance(direction, Towards):
        return difference(direction.end, direction.start, out=direction.start)
    return direction
