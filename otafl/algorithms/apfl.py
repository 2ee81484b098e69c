"""Adaptive personalised federated learning.

Deng, Kamani, Mahdavi 2020, "Adaptive Personalized Federated Learning", Algorithm 1. Each device
trains w, which is averaged, and a model v of its own through the mixture m = alpha v + (1 - alpha)
w, all with the same minibatches:

    w <- w - eta grad f(w),    v <- v - eta grad_v f(m) = v - eta alpha grad f(m)

`adaptive` has the device step along the gradient of f(m) by alpha once a round, at the round's
first minibatch and from the models before it, then keep alpha in 0 to 1:

    alpha <- alpha - eta <v - w, grad f(m)>

The personal model is alpha v + (1 - alpha) w with the averaged w (the algorithm's output), so it is
what a device has once it received w, after aggregation. Those of absent devices move with w.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_rivals import ApflConfig
from otafl.algorithms.parameters import (
    MODEL,
    averaged,
    column,
    copied,
    flat_view,
    increment,
    named,
    own,
    received_params,
    shared_start,
    step_,
    view_of,
)
from otafl.algorithms.whole_models import start
from otafl.core.contracts import Blocks, Broadcast, Cohort, Hyper, Payload, Received, View, Work
from otafl.core.rng import Streams
from otafl.models.base import Model, flatten, unflatten

ALPHA = "mixing"


class Apfl:
    """Server block "model" [S, P], which is w. Device blocks "personal.<name>": v, the server's
    start at first; "mixing" [S, K]: alpha."""

    def __init__(self, config: ApflConfig, model: Model, devices: int) -> None:
        self.config = config
        self.model = model

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        flat = flatten(start(self.model, streams))
        devices = shared_start("personal", flat, self.model)
        return {MODEL: flat}, {**devices, ALPHA: hyper["mixing"][:, None]}

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
        received = received_params(broadcast, self.model)
        w, v, alpha = copied(received), own(devices, "personal"), devices[ALPHA]
        mixed = {name: torch.empty_like(block) for name, block in v.items()}
        rate = hyper["learning_rate"][cohort.trial]
        personal_rate = hyper["personal_learning_rate"][cohort.trial]
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            batch = work.batch(step)
            for name, block in mixed.items():
                torch.lerp(w[name], v[name], column(alpha, block), out=block)
            _, grads = self.model.gradients(mixed, batch)
            size = personal_rate * alpha
            if self.config.adaptive and step == 0:
                slope = _inner(v, w, grads)
                alpha = (alpha - personal_rate * slope).clamp(0.0, 1.0)
            step_(v, grads, size)
            loss += self.model.sgd_(w, batch, rate)
        state = {**named("personal", v), ALPHA: alpha}
        return state, increment(w, received), loss / work.steps

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
        w, alpha = unflatten(server[MODEL], self.model.shapes), devices[ALPHA]
        mixed = {
            name: torch.lerp(w[name][:, None], v, alpha.view(*alpha.shape, *[1] * (v.dim() - 2)))
            for name, v in own(devices, "personal").items()
        }
        return {
            "global": flat_view(self.model, server[MODEL]),
            "personal": view_of(
                self.model, {name: block.flatten(0, 1) for name, block in mixed.items()}, "device"
            ),
        }

    def flops(self, samples: int) -> float:
        return 2.0 * self.model.training_flops(samples)


def _inner(v: Blocks, w: Blocks, grads: Blocks) -> Tensor:
    """[n]: <v - w, grads>."""
    parts = [((v[n] - w[n]) * grad).flatten(1).sum(1) for n, grad in grads.items()]
    return torch.stack(parts).sum(0)
