"""Train a global model from which one gradient step makes a good personal one (Per-FedAvg).

Model-agnostic meta-learning. A local step, with minibatches D, D', D'', one for each of the three
derivatives:

    u = w - alpha grad f(w; D)
    w <- w - beta (I - alpha H f(w; D'')) grad f(u; D')

FO leaves the Hessian H out. HF takes its product with g = grad f(u; D') from two gradients,
(grad f(w + delta g; D'') - grad f(w - delta g; D'')) / (2 delta). beta is `learning_rate`, alpha
`personal_learning_rate`. The personal model is the global one after gradient steps of size alpha on
the device's own samples, taken before it is tested.

References
----------
Fallah, Mokhtari, Ozdaglar 2020, "Personalized Federated Learning with Theoretical Guarantees: A
    Model-Agnostic Meta-Learning Approach", Algorithm 1.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field

from otafl.algorithms.base import Algorithm, AveragedSettings, Outcome, Views
from otafl.algorithms.parameters import build_increment_, get_received_params
from otafl.algorithms.prox import take_step
from otafl.core import contracts as c
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable

ALPHA = "fine_tune_learning_rate"
"""The server's block of alpha, [S]: what the views need of the settings."""


class PerFedAvg(Algorithm):
    """Keeps server blocks "model" [S, P], and alpha [S]; no device state."""

    averages_increments: ClassVar[bool] = True
    broadcast_names: ClassVar[tuple[str, ...]] = (c.MODEL,)

    class Settings(AveragedSettings):
        name: Literal["per_fedavg"] = "per_fedavg"
        personal_learning_rate: float = declare_stackable(0.01, gt=0)
        """alpha, the step from the global model to a device's own"""
        hessian: Literal["none", "difference"] = "none"
        """the meta-gradient's second-order term: left out (FO), or by a difference of gradients
        (HF)"""
        spread: float = declare_stackable(1e-3, gt=0)
        """with hessian: difference, delta: gradients are taken at w +- delta g, g the gradient that
        the Hessian meets"""
        fine_tune_steps: int = Field(1, ge=1)
        """steps from the global model to the personal one before it is tested; pFedBreD's text has
        2, its program 1"""

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        server, devices = super().init(streams, hyper)
        return server | {ALPHA: hyper["personal_learning_rate"].clone()}, devices

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        form, work = self.form, context.local_data
        w = form.copy_params(get_received_params(broadcast, self.model))
        alpha, beta = (
            context.gather_hyper("personal_learning_rate"),
            context.gather_hyper("learning_rate"),
        )
        delta = context.gather_hyper("spread")
        loss = torch.zeros_like(alpha)
        for index in range(work.steps):
            span = form.make_span(
                work.draw_batch(index), w, second_batch=work.draw_batch(index, draw_index=1)
            )
            inner = span.compute_second_gradient()
            slope = span.compute_gradient(take_step(span, span.origin, inner, alpha))
            loss += inner.loss
            if self.settings.hessian == "none":
                form.take_step_(w, slope, beta)
                continue
            third = form.make_span(work.draw_batch(index, draw_index=2), w)
            ahead, behind = (
                third.compute_gradient(take_step(third, third.origin, slope, side))
                for side in (-delta, delta)
            )
            share = alpha * beta / (2.0 * delta)
            form.take_step_(w, slope, beta)
            form.take_step_(w, ahead, -share)
            form.take_step_(w, behind, share)
        sent = build_increment_(form.to_params(w), broadcast, self.model.shapes)
        return {}, sent, loss / work.steps

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        return super().update_server(server, received, context) | {ALPHA: server[ALPHA]}

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        views = super().build_views(server, devices)
        model, tuned = views["global"], c.FineTuneSpec(self.settings.fine_tune_steps, server[ALPHA])
        return views | {"personal": c.View(model.params, model.predict_fn, fine_tune=tuned)}

    @property
    def flops_per_param_step(self) -> float:
        """Count a step for each gradient; the two of the Hessian's product are points too."""
        return 4.0 if self.settings.hessian == "none" else 12.0

    @property
    def gradients_per_step(self) -> int:
        return 2 if self.settings.hessian == "none" else 4
