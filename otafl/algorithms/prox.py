"""Solvers of the proximal problem of personalised methods, by a few steps on one minibatch.

    minimise over theta   f(theta; X) + penalty/2 ||theta - centre||^2

`take_gradient_steps` is gradient descent (pFedMe, Dinh, Tran, Nguyen 2020; pFedBreD, Shi et al.
2023). `take_nesterov_steps` is the accelerated method of TDPFed (Wang et al.). `take_envelope_step`
solves the problem and then takes a step along the gradient of the Moreau envelope.

    form = choose_form(model)                                  # otafl.models.span
    w, centre = form.copy_params(params), form.copy_params(others)     # [n, ...]
    span = form.make_span(work.draw_batch(index), w, subtract_params(centre, w))
    there = span.origin + span.directions[0]                   # the centre, as a point [n, Q]
    theta, loss = take_nesterov_steps(span, span.origin, there, step, penalty, steps)
    span.write_(theta, w)                                      # w is now theta

start, centre and theta are points [n, Q] of a span. step and penalty are [n]. The loss [n] that
solvers return is the minibatch's at the first gradient, before any step.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.models.span import Gradient, Span

PENALTY = (
    "lambda, strength of the prior; in the authors' experiments 30 for a DNN, 15 for other models"
)
PROX_STEPS = "K, number of gradient steps of the proximal solver in each local step"

PENALISED = 5.0
"""Operations per parameter of a gradient step under a penalty, besides those of the gradient.

They are theta - centre, times the penalty, added to the gradient; and the step.
"""

AHEAD = 3.0
"""Operations per parameter of the point of Nesterov's step, theta + share (theta - before)."""

ENVELOPE = 3.0
"""Operations per parameter of a step along the envelope's gradient.

The step is w - rate penalty (w - theta).
"""


def find_divergence(rate: float, weight: float) -> Iterator[str]:
    """Yield a message if the proximal solver diverges on the penalty alone."""
    if rate * weight >= 2:
        yield (
            "personal_learning_rate times penalty must be below 2, because the steps of the "
            "proximal solver otherwise grow without bound (below 1 they do not overshoot); got "
            f"{rate:g} times {weight:g}"
        )


def take_gradient_steps(
    span: Span, start: Tensor, centre: Tensor, step: Tensor, penalty: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    r"""Take gradient steps on the proximal problem.

    Parameters
    ----------
    span : Span
        Minibatch and coordinates.
    start, centre : Tensor [n, Q]
        Start, and centre of the penalty.
    step, penalty : Tensor [n]
        Step size eta and weight lambda.
    steps : int
        Number of steps.

    Returns
    -------
    Tensor [n, Q]
        Solution theta.
    Tensor [n]
        Loss before the first step.

    Notes
    -----
    .. math::

        \theta \leftarrow \theta - \eta \left[ \nabla f(\theta; X) + \lambda (\theta -
        \mathrm{centre}) \right]
    """
    theta = start.clone()
    share = (step * penalty)[:, None]
    first = _take_penalised_step_(span, theta, centre, step, share)
    for _ in range(steps - 1):
        _take_penalised_step_(span, theta, centre, step, share)
    return theta, first


def take_nesterov_steps(
    span: Span, start: Tensor, centre: Tensor, step: Tensor, penalty: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    r"""Take accelerated gradient steps on the proximal problem.

    Parameters
    ----------
    span : Span
        Minibatch and coordinates.
    start, centre : Tensor [n, Q]
        Start, and centre of the penalty.
    step, penalty : Tensor [n]
        Step size and weight.
    steps : int
        Number of steps.

    Returns
    -------
    Tensor [n, Q]
        Last iterate theta, not the point ahead of it.
    Tensor [n]
        Loss before the first step.

    Notes
    -----
    Step j = 1, 2, ... is that of `take_gradient_steps` from the point

    .. math::

        v = \theta_{j-1} + \frac{j - 1}{j + 2} (\theta_{j-1} - \theta_{j-2}).
    """
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
    """Solve the proximal problem and descend its Moreau envelope.

    Parameters
    ----------
    span : Span
        Minibatch and coordinates.
    base, start, centre : Tensor [n, Q]
        Point that the step moves, start of the solver, and centre of the penalty.
    rates : dict of str to Tensor [n]
        "personal_learning_rate" of the solver, "learning_rate" eta of the step, and "penalty"
        lambda.
    steps : int
        Number of steps of the solver.

    Returns
    -------
    Tensor [n, Q]
        Solution theta.
    Tensor [n, Q]
        Moved point, base - eta lambda (centre - theta).
    Tensor [n]
        Loss before the first step.
    """
    penalty = rates["penalty"]
    theta, loss = take_gradient_steps(
        span, start, centre, rates["personal_learning_rate"], penalty, steps
    )
    along = (rates["learning_rate"] * penalty)[:, None]
    return theta, torch.addcmul(base, along, theta - centre), loss


def take_step(span: Span, point: Tensor, slope: Gradient, step: Tensor) -> Tensor:
    """Compute a gradient step from a point.

    Parameters
    ----------
    span : Span
        Minibatch and coordinates.
    point : Tensor [n, Q]
        Point.
    slope : Gradient
        Gradient.
    step : Tensor [n]
        Step size.

    Returns
    -------
    Tensor [n, Q]
        point - step * gradient.
    """
    moved = point.clone()
    span.descend_(moved, slope, step)
    return moved


def _take_penalised_step_(
    span: Span, theta: Tensor, centre: Tensor, step: Tensor, share: Tensor
) -> Tensor:
    """Take one step in place, share [n, 1] = step * penalty, and return the loss [n] before it."""
    slope = span.compute_gradient(theta)
    theta.lerp_(centre, share)
    span.descend_(theta, slope, step)
    return slope.loss
