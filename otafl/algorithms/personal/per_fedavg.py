"""A global model from which a gradient step gives a good personal model (Per-FedAvg).

Model-agnostic meta-learning. A local step follows the gradient of the loss after one gradient step,
with independent minibatches for the derivatives. The personal model is the global one after
gradient steps on the device's own samples, before the test.

References
----------
Fallah, Mokhtari, Ozdaglar 2020, "Personalized Federated Learning with Theoretical Guarantees: A
    Model-Agnostic Meta-Learning Approach", Algorithm 1.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from otafl.algorithms.base import Algorithm, AveragedSettings, Outcome, Views
from otafl.algorithms.parameters import build_increment, get_received_params
from otafl.algorithms.prox import take_step
from otafl.core import contracts as c
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.models.base import Model

ALPHA = "fine_tune_learning_rate"
"""Name of the server's tensor of alpha, [S], which the views need."""


class PerFedAvg(Algorithm):
    r"""Federated meta-learning.

    The server's tensors are "model" [S, P] and alpha [S]. Devices have no state.

    Notes
    -----
    With minibatches D, D' and D'', the step size alpha `personal_learning_rate` and beta
    `learning_rate`:

    .. math::

        u = w - \alpha \nabla f(w; D)

    .. math::

        w \leftarrow w - \beta \left( I - \alpha \nabla^2 f(w; D'') \right) \nabla f(u; D')

    FO leaves the Hessian out. HF takes its product with g = grad f(u; D') from two gradients:

    .. math::

        \nabla^2 f(w) g \approx \frac{\nabla f(w + \delta g) - \nabla f(w - \delta g)}{2 \delta}

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with other personalised methods.
    """

    averages_increments: ClassVar[bool] = True

    class Settings(AveragedSettings):
        name: Literal["per_fedavg"] = "per_fedavg"
        personal_learning_rate: float = declare_stackable(0.01, gt=0)
        """alpha, step size from the global model to a device's own"""
        hessian: Literal["none", "difference"] = "none"
        """second-order term of the meta-gradient: none, left out (FO); difference, by a difference
        of gradients (HF)"""
        spread: float = declare_stackable(1e-3, gt=0)
        """delta, with hessian: difference; gradients are at w +- delta g, where g is the gradient
        that the Hessian multiplies"""
        fine_tune_steps: int = Field(1, ge=1)
        """number of steps from the global model to the personal one before the test; pFedBreD's
        text has 2, its program 1"""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices)
        self.constants = {"gradients_per_step": 2.0 if settings.hessian == "none" else 4.0}

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        server, devices = super().init(streams, hyper)
        return server | {ALPHA: hyper["personal_learning_rate"].clone()}, devices

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        return c.Broadcast({c.MODEL: server[c.MODEL]})

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        form, work = self.form, context.local_data
        w = form.copy_params(get_received_params(broadcast, self.model))
        alpha = context.gather_hyper("personal_learning_rate")
        beta = context.gather_hyper("learning_rate")
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
        sent = build_increment(form.to_params(w), broadcast, self.model.shapes)
        return {}, sent, loss / work.steps

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        return super().update_server(server, received, context) | {ALPHA: server[ALPHA]}

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        views = super().build_views(server, devices)
        model, tuned = views["global"], c.FineTuneSpec(self.settings.fine_tune_steps, server[ALPHA])
        return views | {"personal": c.View(model.params, model.predict_fn, fine_tune=tuned)}

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count a step for each gradient; the two of the Hessian's product count as points too."""
        gradients, each = (2, 4.0) if self.settings.hessian == "none" else (4, 12.0)
        return self.count_step_flops(workload, gradients, each)
