"""Federated averaging.

McMahan, Moore, Ramage, Hampson, Arcas 2017, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", Algorithm 1. Sent is the increment to the broadcast model, which shrinks as
training converges, where the model itself does not; or, with `sends: model`, the model, a block for
each parameter (FedRLR's baseline 4 with codec uniform, which then quantises layer by layer).
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config import FedAvgConfig
from otafl.algorithms.personal_models import flat_view
from otafl.algorithms.whole_models import (
    payload_of,
    received_model,
    start,
    step_size,
    weights_of,
)
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


class FedAvg:
    """Server block "model" [S, P], all parameters of a trial side by side; no device state."""

    def __init__(self, config: FedAvgConfig, model: Model, devices: int) -> None:
        self.config = config
        self.model = model
        self.weights = weights_of(model)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        return {"model": flatten(start(self.model, streams))}, {}

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
        old = unflatten(update, self.model.shapes)
        contiguous = torch.contiguous_format  # batched products in place need it
        params = {name: value.clone(memory_format=contiguous) for name, value in old.items()}
        step = step_size(hyper, work.round)[cohort.trial]
        loss = torch.zeros_like(step)
        for index in range(work.steps):
            loss += self.model.sgd_(params, work.batch(index), step)
        if self.config.sends == "model":
            payload = payload_of(params, self.weights, self.config.bias_mode)
            return {}, payload, loss / work.steps
        for name, value in old.items():  # the increment, in its place
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
        if self.config.sends == "model":
            mean = flatten(received_model(received, self.model))
            return {"model": torch.lerp(server["model"], mean, step)}
        return {"model": torch.addcmul(server["model"], step, received.mean[0]["model"])}

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        return {"global": flat_view(self.model, server["model"])}

    def flops(self, samples: int) -> float:
        return self.model.training_flops(samples)
