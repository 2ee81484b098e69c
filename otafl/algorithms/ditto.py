"""Ditto.

Li, Hu, Beirami, Smith 2021, "Ditto: Fair and Robust Federated Learning Through Personalization",
Algorithm 1. Beside federated averaging of w, each device keeps a model v of its own and lowers
h_k(v; w^t) = F_k(v) + lambda/2 |v - w^t|^2 by SGD, w^t being what it received in this round:

    v <- v - eta (grad F_k(v) + lambda (v - w^t))

Both models take as many steps, on the same minibatches. With lambda = 0 v is trained by the device
alone. The personal model is v after local training; that of an absent device stays as it is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_rivals import DittoConfig
from otafl.algorithms.parameters import (
    MODEL,
    averaged,
    copied,
    device_view,
    flat_view,
    increment,
    named,
    own,
    penalised_sgd_,
    received_params,
    shared_start,
)
from otafl.algorithms.whole_models import start
from otafl.core.contracts import Blocks, Broadcast, Cohort, Hyper, Payload, Received, View, Work
from otafl.core.rng import Streams
from otafl.models.base import Model, flatten


class Ditto:
    """Server block "model" [S, P], which is w. Device blocks "personal.<name>": v, the server's
    start at first."""

    def __init__(self, config: DittoConfig, model: Model, devices: int) -> None:
        self.model = model

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        flat = flatten(start(self.model, streams))
        return {MODEL: flat}, shared_start("personal", flat, self.model)

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
        received = received_params(broadcast, self.model)
        w, v = copied(received), own(devices, "personal")
        rate, personal_rate, penalty = (
            hyper[name][cohort.trial]
            for name in ("learning_rate", "personal_learning_rate", "penalty")
        )
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            batch = work.batch(step)
            loss += self.model.sgd_(w, batch, rate)
            penalised_sgd_(self.model, v, received, batch, personal_rate, penalty)
        return named("personal", v), increment(w, received), loss / work.steps

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        return {MODEL: averaged(server, received, hyper)}

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        return {
            "global": flat_view(self.model, server[MODEL]),
            "personal": device_view(self.model, devices, "personal"),
        }

    def flops(self, samples: int) -> float:
        return 2.0 * self.model.training_flops(samples)
