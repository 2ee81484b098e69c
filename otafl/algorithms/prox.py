"""Solve the proximal problem of personalised methods by a few steps on one minibatch:

    minimise over theta   f(theta; X) + penalty/2 ||theta - centre||^2.

`take_gradient_steps` is plain gradient descent (pFedMe, Dinh, Tran, Nguyen 2020; pFedBreD, Shi et
al. 2023), `take_nesterov_steps` the accelerated one of TDPFed (Wang et al.), `take_envelope_step` a
solve and the step along the Moreau envelope's gradient, penalty (centre - theta), that follows it.

    form = form_of(model)                                # otafl.models.span: how models are kept
    w, centre = form.hold(params), form.hold(others)     # copies [n, ...]
    span = form.span(work.batch(index), w, difference(centre, w))
    there = span.origin + span.directions[0]             # the centre, as a point [n, Q]
    theta, loss = nesterov_steps(span, span.origin, there, step, penalty, steps)
    span.write_(theta, w)                                # w is now theta

start, centre, theta: points [n, Q] of a span. step, penalty: [n]. The loss [n] that solvers return
is the minibatch's at the first gradient, before any step.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.models.span import Gradient, Span

PENALTY = (
    "lambda, the strength of the prior; of the authors: 30 for a DNN, 15 for every other model"
)
PROX_STEPS = "K, gradient steps of the proximal solver in each local step"

PENALISED = 5.0
"""Operations a parameter of a gradient step under a penalty, beside the gradient's: theta - centre,
times the penalty, added to the gradient; and the step."""

AHEAD = 3.0
"""Those of the point that Nesterov's step is taken from, theta + share (theta - before)."""

ENVELOPE = 3.0
"""Those of a step along the envelope's gradient, w - rate penalty (w - theta)."""


def find_divergence(rate: float, weight: float) -> Iterator[str]:
    """Yield a sentence where the proximal solver diverges on the penalty alone."""
    if rate * weight >= 2:
        yield (
            "personal_learning_rate times penalty must be below 2, or the steps of the proximal "
            f"solver grow without bound (below 1 they do not overshoot); got {rate:g} times "
            f"{weight:g}"
        )


def take_gradient_steps(
    span: Span, start: Tensor, centre: Tensor, step: Tensor, penalty: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """Take theta <- theta - step [grad f(theta; X) + penalty (theta - centre)] so many times."""
    theta = start.clone()
    share = (step * penalty)[:, None]
    first = _take_penalised_step_(span, theta, centre, step, share)
    for _ in range(steps - 1):
        _take_penalised_step_(span, theta, centre, step, share)
    return theta, first


def take_nesterov_steps(
    span: Span, start: Tensor, centre: Tensor, step: Tensor, penalty: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """Take for j = 1, 2, ... the step of `take_gradient_steps` from v = theta + (j - 1)/(j + 2)
    (theta - theta before). Returns the iterate, not the point looked ahead to."""
    share = (step * penalty)[:, None]
    before, theta = start, start.clone()
    first = _take_penalised_step_(span, theta, centre, step, share)
    for j in range(2, steps + 1):
        ahead = torch.lerp(before, theta, 1.0 + (j - 1) / (j + 2))
        before, theta = theta, ahead
        _take_penalised_step_(span, theta, centre, step, share)
    return theta, first


def take_envelope_step(
    span: Span, base: Tensor, start: Tensor, centre: Tensor, rates: Tensors, steps: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return theta of `take_gradient_steps` of size "personal_learning_rate", base - "
    ""learning_ratepenalty" (centre - theta), and the loss; rates [n] by these names."""
    penalty = rates["penalty"]
    theta, loss = take_gradient_steps(
        span, start, centre, rates["personal_learning_rate"], penalty, steps
    )
    along = (rates["learning_rate"] * penalty)[:, None]
    return theta, torch.addcmul(base, along, theta - centre), loss


def take_step(span: Span, point: Tensor, slope: Gradient, step: Tensor) -> Tensor:
    """Return point - step [n] * gradient."""
    moved = point.clone()
    span.descend_(moved, slope, step)
    return moved


def _take_penalised_step_(
    span: Span, theta: Tensor, centre: Tensor, step: Tensor, share: Tensor
) -> Tensor:
    """Take one step in place, share [n, 1] = step * penalty; returns the loss [n] before it."""
    slope = span.compute_gradient(theta)
    theta.lerp_(centre, share)
    span.descend_(theta, slope, step)
    return slope.loss
