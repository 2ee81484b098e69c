"""Per-FedAvg.

Fallah, Mokhtari, Ozdaglar 2020, "Personalized Federated Learning with Theoretical Guarantees: A
Model-Agnostic Meta-Learning Approach", Algorithm 1. A local step, with minibatches D, D', D'', one
for each of the three derivatives:

    u = w - alpha grad f(w; D)
    w <- w - beta (I - alpha H f(w; D'')) grad f(u; D')

FO leaves the Hessian H out. HF takes its product with g = grad f(u; D') from two gradients,
(grad f(w + delta g; D'') - grad f(w - delta g; D'')) / (2 delta). beta is `learning_rate`, alpha
`personal_learning_rate`. The personal model is the global one after gradient steps of size alpha on
the device's own samples, taken before it is tested.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_prior import PerFedAvgConfig
from otafl.algorithms.parameters import MODEL, averaged, flat_view
from otafl.algorithms.prox import sent, stepped
from otafl.algorithms.whole_models import start
from otafl.core.contracts import (
    Blocks,
    Broadcast,
    Cohort,
    FineTune,
    Hyper,
    Payload,
    Received,
    View,
    Work,
)
from otafl.core.rng import Streams
from otafl.models.base import Model, flatten, unflatten
from otafl.models.span import form_of

ALPHA = "fine_tune_learning_rate"
"""The server's block of alpha, [S]: what the views need of the settings."""


class PerFedAvg:
    """Server blocks: "model" [S, P], and alpha [S]. No device state."""

    def __init__(self, config: PerFedAvgConfig, model: Model, devices: int) -> None:
        self.config = config
        self.model = model
        self.form = form_of(model)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        flat = flatten(start(self.model, streams))
        return {MODEL: flat, ALPHA: hyper["personal_learning_rate"].clone()}, {}

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        return Broadcast({MODEL: server[MODEL]})

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
        w = form.hold(unflatten(broadcast.blocks[MODEL], self.model.shapes))
        alpha, beta, delta = (
            hyper[name][cohort.trial]
            for name in ("personal_learning_rate", "learning_rate", "spread")
        )
        loss = torch.zeros_like(alpha)
        for index in range(work.steps):
            span = form.span(work.batch(index), w, beside=work.batch(index, draw=1))
            inner = span.slope_beside()
            slope = span.slope(stepped(span, span.origin, inner, alpha))
            loss += inner.loss
            if self.config.hessian == "none":
                form.step_(w, slope, beta)
                continue
            third = form.span(work.batch(index, draw=2), w)
            ahead, behind = (
                third.slope(stepped(third, third.origin, slope, side)) for side in (-delta, delta)
            )
            share = alpha * beta / (2.0 * delta)
            form.step_(w, slope, beta)
            form.step_(w, ahead, -share)
            form.step_(w, behind, share)
        payload = sent(form.blocks(w), broadcast.blocks[MODEL], self.model)
        return {}, payload, loss / work.steps

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        return {MODEL: averaged(server, received, hyper), ALPHA: server[ALPHA]}

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        model = flat_view(self.model, server[MODEL])
        tuned = FineTune(self.config.fine_tune_steps, server[ALPHA])
        return {
            "global": model,
            "personal": View(model.params, model.predict, fine_tune=tuned),
        }

    def constants(self) -> dict[str, float]:
        return {"gradients_per_step": float(self._gradients)}

    @property
    def _gradients(self) -> int:
        """Gradients of a local step."""
        return 2 if self.config.hessian == "none" else 4

    def flops(self, samples: int) -> float:
        return self._gradients * self.model.training_flops(samples)
