"""Federated averaging.

McMahan, Moore, Ramage, Hampson, Arcas 2017, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", Algorithm 1. Sent is the increment to the broadcast model, which shrinks as
training converges, where the model itself does not.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config import FedAvgConfig
from otafl.contracts import (
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
from otafl.models.base import Model, flatten, unflatten
from otafl.rng import Streams


class FedAvg:
    """Server block "model" [S, P], all parameters of a trial side by side; no device state."""

    def __init__(self, config: FedAvgConfig, model: Model, devices: int) -> None:
        self.model = model

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        start = self.model.init(lambda name, shape: streams.uniform(f"init/{name}", 0, shape))
        return {"model": flatten(start)}, {}

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
        update = broadcast.blocks["model"]
        start = unflatten(update, self.model.shapes)
        contiguous = torch.contiguous_format  # batched products in place need it
        params = {name: value.clone(memory_format=contiguous) for name, value in start.items()}
        step = (hyper["learning_rate"] / (1.0 + hyper["decay"] * work.round))[cohort.trial]
        loss = torch.zeros_like(step)
        for index in range(work.steps):
            loss += self.model.sgd_(params, work.batch(index), step)
        for name, value in start.items():  # the increment, in place of the start
            torch.sub(params[name], value, out=value)
        return {}, (Group({"model": update}),), loss / work.steps

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        step = hyper["server_learning_rate"][:, None]
        return {"model": torch.addcmul(server["model"], step, received.mean[0]["model"])}

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        shapes = self.model.shapes
        return {
            "global": View(
                server, lambda blocks, x: self.model.logits(unflatten(blocks["model"], shapes), x)
            )
        }

    def flops(self, samples: int) -> float:
        return self.model.training_flops(samples)
