"""FedBN.

Li, Jiang, Zhang, Kamp, Dou 2021, "FedBN: Federated Learning on Non-IID Features via Local Batch
Normalization", Algorithm 1: local SGD on all parameters, then the mean of all but those of
normalisation layers, which stay at the device and are never sent.

The personal model is the averaged parameters with the device's normalisation, what a device has
once it received them, after aggregation. There is no global model, as nobody has parameters of
normalisation for it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_rivals import FedBnConfig
from otafl.algorithms.parameters import MODEL, averaged, increment, named
from otafl.algorithms.partly_shared import KEPT, joined, personal_view, shared_shapes, split_start
from otafl.core.contracts import Blocks, Broadcast, Cohort, Hyper, Payload, Received, View, Work
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models.base import Model


class FedBn:
    """Server block "model" [S, P]: all parameters but those of normalisation layers. Device blocks
    "personal.<name>": those."""

    def __init__(self, config: FedBnConfig, model: Model, devices: int) -> None:
        if not model.norms:
            raise UserError(
                "algorithm.name: 'fedbn' keeps the parameters of normalisation layers at the "
                "devices, and the model has none; conv_net, resnet, vgg or a torch.nn.Module with "
                "GroupNorm or LayerNorm would do, or fedavg"
            )
        self.model = model
        self.shapes = shared_shapes(model, model.norms)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        return split_start(self.model, self.model.norms, streams)

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
        received, params = joined(broadcast, devices, self.shapes)
        rate = hyper["learning_rate"][cohort.trial]
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            loss += self.model.sgd_(params, work.batch(step), rate)
        kept = named(KEPT, {name: params[name] for name in self.model.norms})
        return kept, increment(params, received), loss / work.steps

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
        return {"personal": personal_view(self.model, server, devices, self.shapes)}

    def flops(self, samples: int) -> float:
        return self.model.training_flops(samples)
