"""Averaging of models whose weights stay sparse by soft thresholds (proximal SGD).

The l1 norm of the weights is added to the loss, and its proximal step soft-thresholds the weights
after each gradient step. With `momentum` it is ProxSGD with quadratic gain 1/eta and a full step
towards its minimiser. Devices send the model itself. It is baseline 2 of Xue and Lau's comparison
with FedRLR.

References
----------
Yang, Yuan, Chatzinotas, Ottersten 2020, "ProxSGD: Training Structured Neural Networks under
    Regularization and Constraints", Algorithm 1.
Xue, Lau 2023, "Riemannian Low-Rank Model Compression for Federated Learning with Over-the-Air
    Aggregation", section VI.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Outcome
from otafl.algorithms.baselines.whole_model_method import WholeModelMethod
from otafl.algorithms.parameters import count_step_flops
from otafl.algorithms.whole_models import (
    BiasMode,
    WholeSettings,
    build_payload,
    compute_step_size,
    list_weights,
)
from otafl.core.contracts import (
    Batch,
    Broadcast,
    Hyper,
    LocalContext,
    Tensors,
    Workload,
    unsqueeze_like,
)
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.factorised.shrinkage import soft_threshold
from otafl.models.base import descend_


class ProxSgd(WholeModelMethod):
    r"""Federated averaging with proximal SGD.

    The server's tensors are the parameters of the model, [S, *shape]. With momentum the device's
    tensors are v of every parameter, [S, K, *shape], initially zero.

    Whatever the uplink does, devices keep v of the momentum, a mean of the device's own
    gradients.

    Notes
    -----
    A local step with the gradient G is

    .. math::

        v \leftarrow (1 - \rho) v + \rho G, \quad W \leftarrow \mathrm{soft}(W - \eta v, \eta
        \lambda)

    where soft is the soft threshold. Without momentum v is G.

    Examples
    --------
    `studies/fedrlr/fedrlr_fig8.yaml` compares it with FedRLR.
    """

    is_per_device = True

    class Settings(WholeSettings):
        name: Literal["prox_sgd"] = "prox_sgd"
        l1_weight: float = declare_stackable(0.001, ge=0)
        """lambda, weight of the l1 norm in the loss"""
        momentum: bool = False
        """whether steps follow v = (1 - rho) v + rho g (ProxSGD's form), which each device keeps
        between rounds, instead of the gradient g"""
        rho: float = declare_stackable(0.1, gt=0, le=1)
        """share of the newest gradient in v, with momentum: true"""
        bias_mode: BiasMode = "ideal"

    def count_flops(self, workload: Workload) -> np.ndarray:
        """Count the steps and soft thresholds, and v + rho (g - v) with momentum."""
        each = 7.0 if self.settings.momentum else 4.0
        return count_step_flops(self.model, workload, per_param_step=each, per_param_round=0.0)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        server, devices = super().init(streams, hyper)
        if not self.settings.momentum:
            return server, devices
        return server, {name: torch.zeros_like(block)[:, None] for name, block in server.items()}

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        trial, work, weights = context.cohort.trial, context.local_data, list_weights(self.model)
        params = dict(broadcast.tensors)
        eta = compute_step_size(context.hyper, context.round)
        step, threshold = eta[trial], (eta * context.hyper["l1_weight"])[trial]
        loss = torch.zeros_like(step)
        for index in range(work.steps):
            batch = work.draw_batch(index)
            if self.settings.momentum:
                of_step, devices = self._take_momentum_step_(
                    params, devices, batch, step, context.gather_hyper("rho")
                )
                loss += of_step
            else:
                loss += self.model.take_sgd_step_(params, batch, step)
            for name in weights:
                params[name] = soft_threshold(params[name], unsqueeze_like(threshold, params[name]))
        payload = build_payload(params, self.model, self.settings.bias_mode)
        return devices, payload, loss / work.steps

    def _take_momentum_step_(
        self, params: Tensors, momentum: Tensors, batch: Batch, step: Tensor, rho: Tensor
    ) -> tuple[Tensor, Tensors]:
        """Move parameters by -step v [n] in place, and return the loss [n] before and the new v."""
        loss, grads = self.model.compute_gradients(params, batch)
        moved = {
            name: torch.lerp(momentum[name], g, unsqueeze_like(rho, g)) for name, g in grads.items()
        }
        descend_(params, moved, step)
        return loss, moved
