"""Personalise by Moreau envelopes: descend the envelope of each device's own loss (pFedMe).

Each local step solves the proximal problem around the local model w on one minibatch, by K gradient
steps of size alpha from w, and descends its Moreau envelope:

    theta ~ argmin f(theta; X) + lambda/2 ||theta - w||^2
    w <- w - eta lambda (w - theta)

The personal model is theta after local training. It is pFedBreD whose prior's mean is w. The
authors' beta is `server_learning_rate`.

The published program does three things otherwise (`implementation: original`, for comparison): its
proximal steps also decay theta, by 1e-3; they start at the theta of the last local step, at w in
the first one of a round only; and the tensors that it keeps as the personal model are the model's
own, which then becomes w, so that its personal model is the local one.

References
----------
Dinh, Tran, Nguyen 2020, "Personalized Federated Learning with Moreau Envelopes", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import (
    Algorithm,
    AveragedSettings,
    Outcome,
    declare_penalty,
    declare_personal_rate,
)
from otafl.algorithms.parameters import add_prefix, build_increment_, get_received_params
from otafl.algorithms.prox import (
    ENVELOPE,
    PENALISED,
    PENALTY,
    PROX_STEPS,
    find_divergence,
    take_envelope_step,
    take_gradient_steps,
)
from otafl.core.contracts import Batch, Broadcast, LocalContext, Tensors
from otafl.core.settings import declare_stackable
from otafl.models.span import FormParams, subtract_params


class PFedMe(Algorithm):
    """Keeps server block "model" [S, P], which is w, and device blocks "personal.<name>": the
    personal model, the server's start at first."""

    private_state: ClassVar[str] = (
        "the personal model: it is trained for the device, from what it received"
    )

    averages_increments: ClassVar[bool] = True

    device_models = ("personal",)

    class Settings(AveragedSettings):
        name: Literal["pfedme"] = "pfedme"
        penalty: float = declare_penalty(15.0, PENALTY)
        personal_learning_rate: float = declare_personal_rate()
        prox_steps: int = Field(5, ge=1, description=PROX_STEPS)
        implementation: Literal["paper", "original"] = "paper"
        """paper: as published; original: as its authors' program, whose proximal steps have a
        hidden weight decay, start where the last local step ended, and whose personal model is the
        local one in truth"""
        weight_decay: float = declare_stackable(1e-3, ge=0)
        """with implementation: original, the decay in each proximal step"""

        def find_conflicts(self) -> Iterator[str]:
            return find_divergence(self.personal_learning_rate, self.penalty)

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        form, work = self.form, context.local_data
        as_published = self.settings.implementation == "paper"
        rates = {name: context.gather_hyper(name) for name in context.hyper}
        received = get_received_params(broadcast, self.model)
        w = form.copy_params(received)
        theta = form.copy_params(
            received
        )  # the model that the first step of "original" starts from
        step = self._take_step_ if as_published else self._take_published_step_
        loss = torch.zeros_like(rates["penalty"])
        for index in range(work.steps):
            loss += step(work.draw_batch(index), w, theta, rates)
        local = form.to_params(w)
        sent = build_increment_(local, broadcast, self.model.shapes)
        personal = form.to_params(theta) if as_published else local
        return add_prefix("personal", personal), sent, loss / work.steps

    def _take_step_(self, batch: Batch, w: FormParams, theta: FormParams, rates: Tensors) -> Tensor:
        """Take a local step, in place; returns the loss [n] before it."""
        span = self.form.make_span(batch, w)
        at, steps = span.origin, self.settings.prox_steps
        solved, moved, loss = take_envelope_step(span, at, at, at, rates, steps)
        span.write_each_((moved, w), (solved, theta))
        return loss

    def _take_published_step_(
        self, batch: Batch, w: FormParams, theta: FormParams, rates: Tensors
    ) -> Tensor:
        """Take the published program's step. The decay and the penalty pull together towards
        lambda / (lambda + decay) w, with the weight lambda + decay."""
        whole = self.form.copy_params(self.form.to_params(w))
        span = self.form.make_span(batch, theta, subtract_params(w, theta), whole)
        local = span.origin + span.directions[0]
        both = rates["penalty"] + rates["weight_decay"]
        share = (rates["weight_decay"] / both)[:, None]
        shrunk = torch.addcmul(local, share, span.directions[1], value=-1.0)
        rate, steps = rates["personal_learning_rate"], self.settings.prox_steps
        solved, loss = take_gradient_steps(span, span.origin, shrunk, rate, both, steps)
        along = (rates["learning_rate"] * rates["penalty"])[:, None]
        moved = torch.addcmul(local, along, solved - local)
        span.write_each_((moved, w), (solved, theta))
        return loss

    @property
    def flops_per_param_step(self) -> float:
        """Count the proximal steps, and that of w; of "original" its point without decay too."""
        local = ENVELOPE if self.settings.implementation == "paper" else ENVELOPE + 2.0
        return PENALISED * self.settings.prox_steps + local

    @property
    def gradients_per_step(self) -> int:
        return int(self.settings.prox_steps)
