"""Averaging of models under a regulariser that follows each device's gradient (FedDyn).

A device keeps an estimate of the gradient of its loss, which it subtracts from the gradient in
every local step, under a penalty on the distance to the broadcast model. So local minima agree with
the minimum of the mean loss. It sends the increment alone, as long as that of federated averaging.

The server keeps the weighted sum of all devices' estimates. A device changes its own only by what
the server has received, coordinate by coordinate. An absent, silent or late device, and one whose
packet is lost, keeps it. So both stay in step over an uplink that loses packets, without noise or
rounding. Otherwise they drift apart in two ways:

- With error feedback all coordinates of an update count as received, so the server's sum lacks what
  the codecs remember.
- Over an analogue or quantised uplink the sum also takes up the noise and rounding, which no device
  has. They add up over rounds in a random walk, which the server's step feeds back to the model.

References
----------
Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama 2021, "Federated Learning Based on Dynamic
    Regularization", arXiv 2111.04263, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, find_overshoot
from otafl.algorithms.deliveries import sum_per_trial
from otafl.algorithms.parameters import (
    build_increment,
    get_received_params,
    run_steps,
    take_penalised_step_,
)
from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.models.base import unflatten

SLOPE = "slope"


class FedDyn(Algorithm):
    r"""Federated learning with dynamic regularisation.

    The server's tensors are "model" theta and "slope" h, [S, P]. The device's tensor "slope" is g_k
    [S, K, P], initially zero like h.

    Notes
    -----
    A device descends, by SGD from the broadcast theta,

    .. math::

        L_k(w) - \langle g_k, w \rangle + \frac{\alpha}{2} \|w - \theta\|^2

    and sends its increment Delta_k. With p_k, the share of all samples, and sums over the delivered
    updates

    .. math::

        g_k \leftarrow g_k - \alpha \Delta_k, \quad h \leftarrow h - \alpha \sum_k p_k \Delta_k,
        \quad \theta \leftarrow \theta + \frac{\sum_k p_k \Delta_k}{\sum_k p_k} - \frac{h}{\alpha}.

    For equal devices these are the paper's means. Over an uplink without noise, rounding or error
    feedback h = sum_k p_k g_k over all devices, whichever packets are lost. With error feedback
    g_k counts what the codec of k remembers, and h does not. Noise and rounding of the received
    mean also enter h, but no g_k. There they are a random walk, and -h / alpha adds it to theta in
    every round.

    Examples
    --------
    The page on methods shows a scenario with it.
    """

    acknowledged_state: ClassVar[tuple[str, ...]] = (SLOPE,)
    only_reads_broadcast: ClassVar[bool] = True

    is_per_device = True

    class Settings(settings.Settings):
        name: Literal["feddyn"] = "feddyn"
        learning_rate: float = declare_stackable(0.1, gt=0)
        """step size of local SGD"""
        penalty: float = declare_stackable(0.1, gt=0)
        """alpha, weight of the penalty alpha/2 |w - theta|^2 on the distance to the broadcast
        model; 0.1, 0.01 and 0.001 in the paper"""

        def find_conflicts(self) -> Iterator[str]:
            return find_overshoot("learning_rate", self.learning_rate, self.penalty, "penalty")

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the penalised steps with eta g_k added, the increment, eta g_k and the new g_k."""
        return self.count_step_flops(workload, per_param_step=6.0, per_param_round=4.0)

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        server, _ = super().init(streams, hyper)
        zero = torch.zeros_like(server[c.MODEL])
        return server | {SLOPE: zero}, {SLOPE: zero[:, None]}

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        return c.Broadcast({c.MODEL: server[c.MODEL]})

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        centre = get_received_params(broadcast, self.model)
        params = self.model.copy_trainable(centre)
        rate, alpha = context.gather_hyper("learning_rate"), context.gather_hyper("penalty")
        shift = unflatten(rate[:, None] * devices[SLOPE], self.model.shapes)

        def take_step_(batch: c.Batch) -> Tensor:
            loss = take_penalised_step_(self.model, params, centre, batch, rate, alpha)
            for name, block in params.items():
                block.add_(shift[name])
            return loss

        loss = run_steps(context, take_step_)
        return devices, build_increment(params, broadcast, self.model.shapes), loss

    def on_ack(
        self,
        devices: c.Tensors,
        sent: c.Payload,
        delivered_masks: c.DeliveredMasks,
        context: c.Context,
    ) -> c.Tensors:
        change = torch.where(delivered_masks[0], sent[0].tensors[c.MODEL], 0.0)
        alpha = context.gather_hyper("penalty")[:, None]
        return {SLOPE: devices[SLOPE].addcmul_(alpha, change, value=-1.0)}

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        mean, alpha = received.mean[0][c.MODEL], context.hyper["penalty"][:, None]
        weight = received.delivered_weight(0, c.MODEL)
        share = sum_per_trial(context.cohort.weight, context.cohort)[:, None] * weight
        slope = server[SLOPE] - alpha * share * mean
        moved = server[c.MODEL] + mean - slope / alpha
        return {c.MODEL: torch.where(weight > 0, moved, server[c.MODEL]), SLOPE: slope}
