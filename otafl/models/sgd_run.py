"""Several SGD steps of one size on the same parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from otafl.core.contracts import Batch, LocalData, Tensors
from otafl.core.lazy import Tensor, torch

SgdStep = Callable[[Tensors, Batch, Tensor], Tensor]
"""SGD step in place, a function of params, minibatches and step size [n] that returns the loss
[n]."""


class SgdRun(Protocol):
    """SGD steps of one size on the same parameters."""

    def take_step_(self, batch: Batch) -> None:
        """Take a step on the minibatch of each row, in place."""

    def sum_losses(self) -> Tensor:
        """Return the sum [n] of the losses before each step so far."""


class PlainRun:
    """SGD steps by a function that takes one.

    Parameters
    ----------
    take_step_ : SgdStep
        The function.
    params : dict of str to Tensor [n, *shape]
        Parameters, changed in place.
    step : Tensor [n]
        Step size.
    """

    def __init__(self, take_step_: SgdStep, params: Tensors, step: Tensor) -> None:
        self._take_step_, self._params, self._step = take_step_, params, step
        self._loss = torch.zeros_like(step)

    def take_step_(self, batch: Batch) -> None:
        """Take a step on the minibatch of each row, in place."""
        self._loss += self._take_step_(self._params, batch, self._step)

    def sum_losses(self) -> Tensor:
        """Return the sum [n] of the losses before each step so far."""
        return self._loss


def take_all_steps_(run: SgdRun, work: LocalData) -> Tensor:
    """Take all local steps in place, and return the mean loss [n] before them."""
    for step in range(work.steps):
        run.take_step_(work.draw_batch(step))
    return run.sum_losses() / work.steps
