"""Mix a model of each device's own with the averaged one, by a share that it may learn (APFL).

Each device trains w, which is averaged, and a model v of its own through the mixture m = alpha v +
(1 - alpha) w, all with the same minibatches:

    w <- w - eta grad f(w),    v <- v - eta grad_v f(m) = v - eta alpha grad f(m)

The paper has one step size for both. `adaptive` has the device step along the gradient of f(m) by
alpha once a round, at the round's first minibatch and from the models before it, then keep alpha in
0 to 1:

    alpha <- alpha - eta (<v - w, grad f(m)> + d alpha)

with d = `mixing_decay`: 0 in the paper, 0.02 in the authors' program.

The personal model is alpha v + (1 - alpha) w with the averaged w (the algorithm's output), so it is
what a device has once it received w, after aggregation. Those of absent devices move with w.

References
----------
Deng, Kamani, Mahdavi 2020, "Adaptive Personalized Federated Learning", Algorithm 1.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, AveragedSettings, Outcome, Views, personal_rate
from otafl.algorithms.parameters import increment_, named, own, received_copy, view_of
from otafl.core.contracts import MODEL, Broadcast, Hyper, LocalContext, Tensors, Workload, column
from otafl.core.rng import Streams
from otafl.core.settings import stackable
from otafl.models.base import descend_, unflatten

ALPHA = "mixing"


class Apfl(Algorithm):
    """Keeps server block "model" [S, P], which is w, and device blocks "personal.<name>": v, the
    server's start at first; "mixing" [S, K]: alpha."""

    own_state: ClassVar[str] = "v and alpha: they are trained for the device, from what it received"

    averages: ClassVar[bool] = True

    keeps = ("personal",)

    apart = True

    step_operations = 7.0
    """The mixture w + alpha (v - w), and the steps of v and w."""

    class Settings(AveragedSettings):
        name: Literal["apfl"] = "apfl"
        personal_learning_rate: float = personal_rate()
        mixing: float = stackable(0.5, ge=0, le=1)
        """alpha, the share of the device's own model, at the start"""
        adaptive: bool = True
        """each device learns its alpha, by a gradient step a round with personal_learning_rate,
        kept in 0 to 1"""
        mixing_decay: float = stackable(0.0, ge=0)
        """d, so many times alpha is added to the gradient by it: a pull towards the averaged model;
        the authors' program has 0.02, their paper none; with adaptive alone"""

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        server, devices = super().init(streams, hyper)
        return server, devices | {ALPHA: hyper["mixing"][:, None]}

    def local(self, broadcast: Broadcast, devices: Tensors, context: LocalContext) -> Outcome:
        w, work = received_copy(broadcast, self.model), context.work
        v, alpha = own(devices, "personal"), devices[ALPHA]
        mixed = {name: torch.empty_like(block) for name, block in v.items()}
        rate, own_rate = (
            context.gather_hyper("learning_rate"),
            context.gather_hyper("personal_learning_rate"),
        )
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            batch = work.batch(step)
            for name, block in mixed.items():
                torch.lerp(w[name], v[name], column(alpha, block), out=block)
            _, grads = self.model.gradients(mixed, batch)
            size = own_rate * alpha
            if self.settings.adaptive and step == 0:
                slope = _inner(v, w, grads) + context.gather_hyper("mixing_decay") * alpha
                alpha = (alpha - own_rate * slope).clamp(0.0, 1.0)
            descend_(v, grads, size)
            loss += self.model.sgd_(w, batch, rate)
        sent = increment_(w, broadcast, self.model.shapes)
        return named("personal", v) | {ALPHA: alpha}, sent, loss / work.steps

    def views(self, server: Tensors, devices: Tensors) -> Views:
        w, alpha = unflatten(server[MODEL], self.model.shapes), devices[ALPHA]
        mixed = {}
        for name, v in own(devices, "personal").items():
            share = alpha.view(*alpha.shape, *[1] * (v.dim() - 2))
            mixed[name] = torch.lerp(w[name][:, None], v, share).flatten(0, 1)
        return super().views(server, devices) | {"personal": view_of(self.model, mixed, "device")}

    @property
    def round_operations(self) -> float:
        """Count w's increment, and the inner product of v - w and the gradient."""
        return 4.0 if self.settings.adaptive else 1.0

    def flops(self, load: Workload) -> np.ndarray:
        return super().flops(load) + load.steps * self.model.training_flops(load.batch)


def _inner(v: Tensors, w: Tensors, grads: Tensors) -> Tensor:
    """Return <v - w, grads>, [n]."""
    parts = [((v[n] - w[n]) * grad).flatten(1).sum(1) for n, grad in grads.items()]
    return torch.stack(parts).sum(0)
