"""Average models whose steps are corrected for each device's own drift (SCAFFOLD).

From the broadcast x and c a device takes K steps

    y <- y - eta_l (g(y) + c - c_i)

and works out c_i+ = c_i - c + (x - y) / (K eta_l). It sends y - x and c_i+ - c_i, each in a payload
group of its own, so that a transport normalises them one by one: the second is 1 / (K eta_l) times
as large. Payload and broadcast are twice as long as those of federated averaging. The server steps
by

    x <- x + eta_g sum_i p_i (y_i - x) / sum_i p_i,    c <- c + sum_i p_i (c_i+ - c_i)

over those that were received, p_i being the share of all samples: for equal devices the paper's
means, and its |S| / N on the second. The devices' drift is corrected by c - c_i, so c and c_i must
move together: a device sets c_i to c_i+ once it knows that the server has received the change, real
by real where a part of it was lost. One that is absent, does not send, is silent, crashes, is late
or loses its packet keeps its c_i, and

    c = sum_i p_i c_i over all devices

holds whatever is lost. What the uplink adds to the sum is another matter: noise, unequal gains, the
error of a codec, and the copy of an update that is heard twice over the air move c, and no c_i.
With a codec that remembers what was not received (error feedback) c_i moves at once, as the change
will come: c = sum_i p_i (c_i - what i remembers of it).

References
----------
Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020, "SCAFFOLD: Stochastic Controlled Averaging for
    Federated Learning", Algorithm 1, option II.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from otafl.algorithms.base import Algorithm, AveragedSettings, Outcome
from otafl.algorithms.deliveries import sum_per_trial
from otafl.algorithms.parameters import apply_mean_increment, copy_received_params
from otafl.core.contracts import (
    MODEL,
    Broadcast,
    Context,
    DeliveredMasks,
    Group,
    Hyper,
    LocalContext,
    Payload,
    Received,
    Tensors,
)
from otafl.core.rng import Streams
from otafl.models.base import flatten, unflatten

CONTROL = "control"


class Scaffold(Algorithm):
    """Keeps server blocks "model" x and "control" c, [S, P]. Device block "control" c_i [S, K, P],
    zero at first like c."""

    acknowledged_state: ClassVar[tuple[str, ...]] = ("control",)

    averages_increments: ClassVar[bool] = True

    class Settings(AveragedSettings):
        name: Literal["scaffold"] = "scaffold"

    flops_per_param_step = 3.0
    """The step, and what is the same in all steps of a round, eta_l (c_i - c)."""

    flops_per_param_round = 6.0
    """eta_l (c_i - c), y - x, the new c_i and its change."""

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        server, _ = super().init(streams, hyper)
        zero = torch.zeros_like(server[MODEL])
        return server | {CONTROL: zero}, {CONTROL: zero[:, None]}

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        x, c, own = broadcast.tensors[MODEL], broadcast.tensors[CONTROL], devices[CONTROL]
        params, work = copy_received_params(broadcast, self.model), context.local_data
        rate = context.gather_hyper("learning_rate")
        shift = unflatten((own - c).mul_(rate[:, None]), self.model.shapes)
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            loss += self.model.take_sgd_step_(params, work.draw_batch(step), rate)
            for name, block in params.items():
                block.add_(shift[name])
        moved = flatten(params).sub_(x)
        change = c.addcdiv_(moved, (rate * work.steps)[:, None]).neg_()  # c_i+ - c_i
        payload = Group({MODEL: moved}), Group({CONTROL: change})
        return {CONTROL: own}, payload, loss / work.steps

    def on_ack(
        self, devices: Tensors, sent: Payload, delivered_masks: DeliveredMasks, context: Context
    ) -> Tensors:
        change = sent[1].tensors[CONTROL]
        return {CONTROL: devices[CONTROL].add_(torch.where(delivered_masks[1], change, 0.0))}

    def update_server(self, server: Tensors, received: Received, context: Context) -> Tensors:
        share = sum_per_trial(context.cohort.weight, context.cohort)
        delivered_share = share[:, None] * received.delivered_weight(1, CONTROL)
        control = torch.addcmul(server[CONTROL], delivered_share, received.mean[1][CONTROL])
        return {MODEL: apply_mean_increment(server, received, context.hyper), CONTROL: control}
