"""pFedMe.

Dinh, Tran, Nguyen 2020, "Personalized Federated Learning with Moreau Envelopes", Algorithm 1. Each
local step solves the proximal problem around the local model w on one minibatch, by K gradient
steps of size alpha from w, and descends its Moreau envelope:

    theta ~ argmin f(theta; X) + lambda/2 ||theta - w||^2
    w <- w - eta lambda (w - theta)

The personal model is theta after local training. It is pFedBreD whose prior's mean is w.

The published program does three things otherwise (`implementation: original`, for comparison): its
proximal steps also decay theta, by 1e-3; they start at the theta of the last local step, at w in
the first one of a round only; and the tensors that it keeps as the personal model are the model's
own, which then becomes w, so that its personal model is the local one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_prior import PFedMeConfig
from otafl.algorithms.parameters import (
    MODEL,
    averaged,
    device_view,
    flat_view,
    named,
    shared_start,
)
from otafl.algorithms.prox import envelope_step, gradient_steps, sent
from otafl.algorithms.whole_models import start
from otafl.core.contracts import (
    Batch,
    Blocks,
    Broadcast,
    Cohort,
    Hyper,
    Payload,
    Received,
    View,
    Work,
)
from otafl.core.rng import Streams
from otafl.models.base import Model, flatten, unflatten
from otafl.models.span import Held, difference, form_of


class PFedMe:
    """Server block "model" [S, P], which is w. Device blocks "personal.<name>": the personal model,
    the server's start at first."""

    def __init__(self, config: PFedMeConfig, model: Model, devices: int) -> None:
        self.config = config
        self.model = model
        self.form = form_of(model)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        flat = flatten(start(self.model, streams))
        return {MODEL: flat}, shared_start("personal", flat, self.model)

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        return Broadcast(server)

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        form = self.form
        rates = {name: hyper[name][cohort.trial] for name in hyper}
        received = unflatten(broadcast.blocks[MODEL], self.model.shapes)
        w = form.hold(received)
        theta = form.hold(received)  # the model that the first step of "original" starts from
        step = self._step_ if self.config.implementation == "paper" else self._original_step_
        loss = torch.zeros_like(rates["penalty"])
        for index in range(work.steps):
            loss += step(work.batch(index), w, theta, rates)
        local = form.blocks(w)
        payload = sent(local, broadcast.blocks[MODEL], self.model)
        personal = form.blocks(theta) if self.config.implementation == "paper" else local
        return named("personal", personal), payload, loss / work.steps

    def _step_(self, batch: Batch, w: Held, theta: Held, rates: Blocks) -> Tensor:
        """A local step, in place; returns the loss [n] before it."""
        span = self.form.span(batch, w)
        solved, moved, loss = envelope_step(
            span,
            span.origin,
            span.origin,
            span.origin,
            rates["personal_learning_rate"],
            rates["penalty"],
            self.config.prox_steps,
            rates["learning_rate"],
        )
        span.write_each_((moved, w), (solved, theta))
        return loss

    def _original_step_(self, batch: Batch, w: Held, theta: Held, rates: Blocks) -> Tensor:
        """The published program's step. The decay and the penalty pull together towards
        lambda / (lambda + decay) w, with the weight lambda + decay."""
        whole = self.form.hold(self.form.blocks(w))
        span = self.form.span(batch, theta, difference(w, theta), whole)
        local = span.origin + span.directions[0]
        both = rates["penalty"] + rates["weight_decay"]
        share = (rates["weight_decay"] / both)[:, None]
        shrunk = torch.addcmul(local, share, span.directions[1], value=-1.0)
        solved, loss = gradient_steps(
            span,
            span.origin,
            shrunk,
            rates["personal_learning_rate"],
            both,
            self.config.prox_steps,
        )
        along = (rates["learning_rate"] * rates["penalty"])[:, None]
        moved = torch.addcmul(local, along, solved - local)
        span.write_each_((moved, w), (solved, theta))
        return loss

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        return {MODEL: averaged(server, received, hyper)}

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        return {
            "global": flat_view(self.model, server[MODEL]),
            "personal": device_view(self.model, devices, "personal"),
        }

    def constants(self) -> dict[str, float]:
        return {"gradients_per_step": float(self.config.prox_steps)}

    def flops(self, samples: int) -> float:
        return self.config.prox_steps * self.model.training_flops(samples)
