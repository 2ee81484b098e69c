"""Averaging of models whose local steps are corrected for each device's drift (SCAFFOLD).

The server and each device have a control variate, an estimate of the gradient of all devices and of
one device. Local steps are corrected by their difference. Devices send the changes of model and
control variate in separate payload groups, so that a transport normalises each by itself: the
second is 1 / (K eta_l) times as large. Payload and broadcast are twice as long as those of
federated averaging.

The server's control variate is the weighted sum of the devices' as long as both change together. So
a device changes its own only when the server has received the change, coordinate by coordinate if a
part was lost. A device that is absent, silent, late, crashed, or whose packet is lost, keeps it.
Errors of the aggregation change only the server's: noise, unequal gains, errors of a codec, and
repeated updates. With error feedback of a codec the device changes its own at once, because the
change will be delivered later.

References
----------
Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020, "SCAFFOLD: Stochastic Controlled Averaging for
    Federated Learning", Algorithm 1, option II.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, AveragedSettings, Outcome
from otafl.algorithms.deliveries import sum_per_trial
from otafl.algorithms.parameters import apply_mean_increment, copy_received_params, run_steps
from otafl.core import contracts as c
from otafl.core.rng import Streams
from otafl.models.base import flatten, unflatten

CONTROL = "control"


class Scaffold(Algorithm):
    r"""Stochastic controlled averaging.

    The server's tensors are "model" x and "control" c, [S, P]. The device's tensor "control" is c_i
    [S, K, P], initially zero like c.

    Notes
    -----
    From the broadcast x and c a device takes K steps with the gradient g and computes its new
    control variate:

    .. math::

        y \leftarrow y - \eta_l (g(y) + c - c_i), \quad c_i^+ = c_i - c + \frac{x - y}{K \eta_l}

    It sends y - x and c_i^+ - c_i. With p_i, the share of all samples, and sums over the delivered
    updates the server computes

    .. math::

        x \leftarrow x + \eta_g \frac{\sum_i p_i (y_i - x)}{\sum_i p_i}, \quad c \leftarrow c +
        \sum_i p_i (c_i^+ - c_i).

    For equal devices these are the paper's means, with its factor |S| / N on the second. For any
    losses c = sum_i p_i c_i over all devices; with error feedback c_i counts without what the codec
    of i remembers.

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with personalised methods.
    """

    acknowledged_state: ClassVar[tuple[str, ...]] = ("control",)

    averages_increments: ClassVar[bool] = True

    is_per_device = True

    class Settings(AveragedSettings):
        name: Literal["scaffold"] = "scaffold"

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the steps, and what a round computes once.

        A step adds eta_l (c_i - c), which is the same in all steps of a round. A round has this
        vector, y - x, the new c_i and its change.
        """
        return self.count_step_flops(workload, per_param_step=3.0, per_param_round=6.0)

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        server, _ = super().init(streams, hyper)
        zero = torch.zeros_like(server[c.MODEL])
        return server | {CONTROL: zero}, {CONTROL: zero[:, None]}

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        x, control, own = broadcast.tensors[c.MODEL], broadcast.tensors[CONTROL], devices[CONTROL]
        params, steps = copy_received_params(broadcast, self.model), context.local_data.steps
        rate = context.gather_hyper("learning_rate")
        shift = unflatten((own - control).mul_(rate[:, None]), self.model.shapes)

        def take_step_(batch: c.Batch) -> Tensor:
            loss = self.model.take_sgd_step_(params, batch, rate)
            for name, block in params.items():
                block.add_(shift[name])
            return loss

        loss = run_steps(context, take_step_)
        moved = flatten(params).sub_(x)
        change = control.addcdiv_(moved, (rate * steps)[:, None]).neg_()  # c_i+ - c_i
        payload = c.Group({c.MODEL: moved}), c.Group({CONTROL: change})
        return {CONTROL: own}, payload, loss

    def on_ack(
        self,
        devices: c.Tensors,
        sent: c.Payload,
        delivered_masks: c.DeliveredMasks,
        context: c.Context,
    ) -> c.Tensors:
        change = sent[1].tensors[CONTROL]
        return {CONTROL: devices[CONTROL].add_(torch.where(delivered_masks[1], change, 0.0))}

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        share = sum_per_trial(context.cohort.weight, context.cohort)
        delivered = share[:, None] * received.delivered_weight(1, CONTROL)
        control = torch.addcmul(server[CONTROL], delivered, received.mean[1][CONTROL])
        return {c.MODEL: apply_mean_increment(server, received, context.hyper), CONTROL: control}
