"""Local training without communication: SGD on each device's own samples, the control of every
personalised method. Nothing is broadcast or sent, so it takes no channel use and there is no
global model; the personal models are all there is."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_rivals import LocalOnlyConfig
from otafl.algorithms.parameters import device_view, named, own, shared_start
from otafl.algorithms.whole_models import start
from otafl.core.contracts import Blocks, Broadcast, Cohort, Hyper, Payload, Received, View, Work
from otafl.core.rng import Streams
from otafl.models.base import Model, flatten


class LocalOnly:
    """No server state. Device blocks "personal.<name>", in each trial the same at first."""

    def __init__(self, config: LocalOnlyConfig, model: Model, devices: int) -> None:
        self.model = model

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        return {}, shared_start("personal", flatten(start(self.model, streams)), self.model)

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        return Broadcast({})

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        params = own(devices, "personal")
        rate = hyper["personal_learning_rate"][cohort.trial]
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            loss += self.model.sgd_(params, work.batch(step), rate)
        return named("personal", params), (), loss / work.steps

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        return server

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        return {"personal": device_view(self.model, devices, "personal")}

    def flops(self, samples: int) -> float:
        return self.model.training_flops(samples)
