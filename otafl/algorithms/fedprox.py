"""FedProx.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, "Federated Optimization in Heterogeneous
Networks", Algorithm 2: a device lowers h_k(w; w^t) = F_k(w) + mu/2 |w - w^t|^2 (2) by SGD from the
broadcast model w^t, so unlike devices cannot drift far apart. With mu = 0 it is federated
averaging.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_rivals import FedProxConfig
from otafl.algorithms.personal_models import (
    MODEL,
    averaged,
    copied,
    flat_view,
    increment,
    penalised_sgd_,
    received_params,
)
from otafl.algorithms.whole_models import start
from otafl.core.contracts import (
    Blocks,
    Broadcast,
    Cohort,
    Hyper,
    Payload,
    Received,
    View,
    Work,
)
from otafl.core.rng import Streams
from otafl.models.base import Model, flatten


class FedProx:
    """Server block "model" [S, P]; no device state."""

    def __init__(self, config: FedProxConfig, model: Model, devices: int) -> None:
        self.model = model

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        return {MODEL: flatten(start(self.model, streams))}, {}

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
        centre = received_params(broadcast, self.model)
        params = copied(centre)
        rate, penalty = (hyper[n][cohort.trial] for n in ("learning_rate", "penalty"))
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            batch = work.batch(step)
            loss += penalised_sgd_(self.model, params, centre, batch, rate, penalty)  # eq. (2)
        return {}, increment(params, centre), loss / work.steps

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
        return {"global": flat_view(self.model, server[MODEL])}

    def flops(self, samples: int) -> float:
        return self.model.training_flops(samples)
