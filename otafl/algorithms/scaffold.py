"""Average models whose steps are corrected for each device's own drift (SCAFFOLD).

From the broadcast x and c a device takes K steps

    y <- y - eta_l (g(y) + c - c_i)

and sets c_i+ = c_i - c + (x - y) / (K eta_l). It sends y - x and c_i+ - c_i, each in a payload
group of its own, so that a transport normalises them one by one: the second is 1 / (K eta_l) times
as large. Payload and broadcast are twice as long as those of federated averaging. The server steps
by

    x <- x + eta_g sum_i p_i (y_i - x) / sum_i p_i,    c <- c + sum_i p_i (c_i+ - c_i)

over those that were received, p_i being the share of all samples: for equal devices the paper's
means, and its |S| / N on the second. A device that is absent, or does not send, keeps its c_i;
so c = sum_i p_i c_i over all devices as long as what is sent arrives without error.

References
----------
Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020, "SCAFFOLD: Stochastic Controlled Averaging for
    Federated Learning", Algorithm 1, option II.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.algorithms.arrivals import per_trial
from otafl.algorithms.base import Algorithm, AveragedSettings, Outcome
from otafl.algorithms.parameters import MODEL, averaged, received_copy
from otafl.core.contracts import Blocks, Broadcast, Context, Group, Hyper, LocalContext, Received
from otafl.core.rng import Streams
from otafl.models.base import flatten, unflatten

CONTROL = "control"


class Scaffold(Algorithm):
    """Keeps server blocks "model" x and "control" c, [S, P]. Device block "control" c_i [S, K, P],
    zero at first like c."""

    averages: ClassVar[bool] = True

    class Settings(AveragedSettings):
        name: Literal["scaffold"] = "scaffold"

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        server, _ = super().init(streams, hyper)
        zero = torch.zeros_like(server[MODEL])
        return server | {CONTROL: zero}, {CONTROL: zero[:, None]}

    def local(self, broadcast: Broadcast, devices: Blocks, context: LocalContext) -> Outcome:
        x, c, own = broadcast.blocks[MODEL], broadcast.blocks[CONTROL], devices[CONTROL]
        params, work = received_copy(broadcast, self.model), context.work
        rate = context.of_rows("learning_rate")
        shift = unflatten((own - c).mul_(rate[:, None]), self.model.shapes)
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            loss += self.model.sgd_(params, work.batch(step), rate)
            for name, block in params.items():
                block.add_(shift[name])
        moved = flatten(params).sub_(x)
        change = c.addcdiv_(moved, (rate * work.steps)[:, None]).neg_()  # c_i+ - c_i
        payload = Group({MODEL: moved}), Group({CONTROL: change})
        if not context.cohort.all_send:  # the server will not know of the others' change
            change = change * context.cohort.sends[:, None]
        return {CONTROL: own + change}, payload, loss / work.steps

    def combine(self, server: Blocks, received: Received, context: Context) -> Blocks:
        share = per_trial(context.cohort.weight, context.cohort)
        came = received.count[1]
        assert isinstance(came, Tensor)  # a weight a trial, as the groups have no mask
        control = torch.addcmul(server[CONTROL], (share * came)[:, None], received.mean[1][CONTROL])
        return {MODEL: averaged(server, received, context.hyper), CONTROL: control}
