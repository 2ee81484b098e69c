"""Mixtures of each device's own model and the averaged one, with a learned share (APFL).

Each device trains two models on the same minibatches: the averaged model, and its own model through
the mixture of both. With `adaptive` it also learns the share of its own model. The personal model
is the mixture with the averaged model after aggregation, which is the output of the paper's
algorithm. So the personal models of absent devices change with the averaged one.

References
----------
Deng, Kamani, Mahdavi 2020, "Adaptive Personalized Federated Learning", Algorithm 1.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, Views
from otafl.algorithms.parameters import (
    add_prefix,
    build_increment_,
    copy_received_params,
    count_step_flops,
    make_view,
    select_prefix,
)
from otafl.algorithms.shared_settings import AveragedSettings, declare_personal_rate
from otafl.core.contracts import (
    MODEL,
    Broadcast,
    Hyper,
    LocalContext,
    Tensors,
    Workload,
    unsqueeze_like,
)
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.models.base import descend_, unflatten

ALPHA = "mixing"


class Apfl(Algorithm):
    r"""Adaptive personalised federated learning.

    The server's tensor "model" [S, P] is w. The device's tensors "personal.NAME" are v, initially
    the server's start, and "mixing" [S, K] is alpha.

    Whatever the uplink does, devices keep v and alpha: they are trained for the device, from
    what it received.

    Notes
    -----
    All steps of a round use the step size eta of the paper; here w and v can have different ones.
    With the mixture m = alpha v + (1 - alpha) w:

    .. math::

        w \leftarrow w - \eta \nabla f(w)

    .. math::

        v \leftarrow v - \eta \alpha \nabla f(m)

    With `adaptive` the device updates alpha once a round, at the first minibatch and with the
    models before it, and clips it to 0 to 1:

    .. math::

        \alpha \leftarrow \alpha - \eta \left( \langle v - w, \nabla f(m) \rangle + d \alpha \right)

    d is `mixing_decay`: 0 in the paper, 0.02 in the authors' program.

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with other personalised methods.
    """

    averages_increments: ClassVar[bool] = True

    device_models = ("personal",)

    is_per_device = True

    class Settings(AveragedSettings):
        name: Literal["apfl"] = "apfl"
        personal_learning_rate: float = declare_personal_rate()
        mixing: float = declare_stackable(0.5, ge=0, le=1)
        """initial alpha, the share of the device's own model in the mixture"""
        adaptive: bool = True
        """whether each device learns its alpha, by one gradient step a round with
        personal_learning_rate, clipped to 0 to 1"""
        mixing_decay: float = declare_stackable(0.0, ge=0)
        """d, factor of alpha that is added to its gradient and pulls towards the averaged model,
        with adaptive: true; 0 in the paper, 0.02 in the authors' program"""

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        server, devices = super().init(streams, hyper)
        return server, devices | {ALPHA: hyper["mixing"][:, None]}

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        w, work = copy_received_params(broadcast, self.model), context.local_data
        v, alpha = select_prefix(devices, "personal"), devices[ALPHA]
        mixed = {name: torch.empty_like(block) for name, block in v.items()}
        rate, own_rate = (
            context.gather_hyper("learning_rate"),
            context.gather_hyper("personal_learning_rate"),
        )
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            batch = work.draw_batch(step)
            for name, block in mixed.items():
                torch.lerp(w[name], v[name], unsqueeze_like(alpha, block), out=block)
            _, grads = self.model.compute_gradients(mixed, batch)
            size = own_rate * alpha
            if self.settings.adaptive and step == 0:
                slope = _inner_product(v, w, grads) + context.gather_hyper("mixing_decay") * alpha
                alpha = (alpha - own_rate * slope).clamp(0.0, 1.0)
            descend_(v, grads, size)
            loss += self.model.take_sgd_step_(w, batch, rate)
        sent = build_increment_(w, broadcast, self.model.shapes)
        return add_prefix("personal", v) | {ALPHA: alpha}, sent, loss / work.steps

    def build_views(self, server: Tensors, devices: Tensors) -> Views:
        w, alpha = unflatten(server[MODEL], self.model.shapes), devices[ALPHA]
        mixed = {}
        for name, v in select_prefix(devices, "personal").items():
            share = alpha.view(*alpha.shape, *[1] * (v.dim() - 2))
            mixed[name] = torch.lerp(w[name][:, None], v, share).flatten(0, 1)
        return super().build_views(server, devices) | {
            "personal": make_view(self.model, mixed, "device")
        }

    def count_flops(self, workload: Workload) -> np.ndarray:
        """Count the mixture w + alpha (v - w) and the steps of v and w.

        A round has the increment of w, and the inner product of v - w and the gradient.
        """
        in_round = 4.0 if self.settings.adaptive else 1.0
        return count_step_flops(
            self.model, workload, 2, per_param_step=7.0, per_param_round=in_round
        )


def _inner_product(v: Tensors, w: Tensors, grads: Tensors) -> Tensor:
    """Compute <v - w, grads>, [n]."""
    parts = [((v[n] - w[n]) * grad).flatten(1).sum(1) for n, grad in grads.items()]
    return torch.stack(parts).sum(0)
