"""SCAFFOLD: stochastic controlled averaging.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020, "SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning", Algorithm 1 with option II for the control variates. From the broadcast x and c
a device takes K steps

    y <- y - eta_l (g(y) + c - c_i)

and sets c_i+ = c_i - c + (x - y) / (K eta_l). It sends y - x and c_i+ - c_i, each in a payload
group of its own, so that a transport normalises them one by one: the second is 1 / (K eta_l) times
as large. The server steps by

    x <- x + eta_g sum_i p_i (y_i - x) / sum_i p_i,    c <- c + sum_i p_i (c_i+ - c_i)

over those that were received, p_i being the share of all samples: for equal devices the paper's
means, and its |S| / N on the second. A device that is absent, or does not send, keeps its c_i;
so c = sum_i p_i c_i over all devices as long as what is sent arrives without error.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_rivals import ScaffoldConfig
from otafl.algorithms.personal_models import MODEL, averaged, copied, flat_view, received_params
from otafl.algorithms.whole_models import start
from otafl.core.contracts import (
    Blocks,
    Broadcast,
    Cohort,
    Group,
    Hyper,
    Payload,
    Received,
    View,
    Work,
)
from otafl.core.rng import Streams
from otafl.models.base import Model, flatten, unflatten

CONTROL = "control"


class Scaffold:
    """Server blocks "model" x and "control" c, [S, P]. Device block "control" c_i [S, K, P], zero
    at first like c."""

    def __init__(self, config: ScaffoldConfig, model: Model, devices: int) -> None:
        self.model = model

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        flat = flatten(start(self.model, streams))
        zero = torch.zeros_like(flat)
        return {MODEL: flat, CONTROL: zero}, {CONTROL: zero[:, None]}

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        return Broadcast(server)

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        x, c, own = broadcast.blocks[MODEL], broadcast.blocks[CONTROL], devices[CONTROL]
        params = copied(received_params(broadcast, self.model))
        rate = hyper["learning_rate"][cohort.trial]
        shift = unflatten((own - c).mul_(rate[:, None]), self.model.shapes)
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            loss += self.model.sgd_(params, work.batch(step), rate)
            for name, block in params.items():
                block.add_(shift[name])
        moved = flatten(params).sub_(x)
        change = c.addcdiv_(moved, (rate * work.steps)[:, None]).neg_()  # c_i+ - c_i
        payload = Group({MODEL: moved}), Group({CONTROL: change})
        if not cohort.all_send:  # the server will not know of the others' change
            change = change * cohort.sends[:, None]
        return {CONTROL: own + change}, payload, loss / work.steps

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        share = cohort.weight.new_zeros(cohort.trials)
        share.index_add_(0, cohort.trial, cohort.weight)
        came = received.count[1]
        assert isinstance(came, Tensor)  # a weight a trial, as the groups have no mask
        control = torch.addcmul(server[CONTROL], (share * came)[:, None], received.mean[1][CONTROL])
        return {MODEL: averaged(server, received, hyper), CONTROL: control}

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        return {"global": flat_view(self.model, server[MODEL])}

    def flops(self, samples: int) -> float:
        return self.model.training_flops(samples)
