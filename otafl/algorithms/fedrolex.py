"""FedRolex.

Alam, Liu, Yan, Zhang 2022, "FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model
Extraction", Algorithm 1: HeteroFL but for which channels a device trains. Of a layer of C channels
a device that keeps c of them has in round t

    t, t + 1, .., t + c - 1   (mod C)

so that within C rounds all are trained equally often. Aggregated is as in HeteroFL.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_widths import FedRolexConfig
from otafl.algorithms.parameters import MODEL
from otafl.algorithms.whole_models import start
from otafl.algorithms.width_slices import (
    level_of,
    level_views,
    moved,
    networks,
    slices,
    train_slices,
)
from otafl.core.contracts import (
    Blocks,
    Broadcast,
    Cohort,
    Hyper,
    Level,
    Payload,
    Received,
    View,
    Work,
)
from otafl.core.rng import Streams
from otafl.models.base import Model, flatten


class FedRolex:
    """Server blocks "model" [S, P]; "round" [S] int64, the next one, whose slices are tested. No
    device state."""

    def __init__(self, config: FedRolexConfig, model: Model, devices: int) -> None:
        self.config = config
        self.sizes = networks(config, model, config.name)

    def levels(self) -> tuple[Level, ...]:
        pairs = zip(self.config.levels, self.sizes, strict=True)
        return tuple(level_of(ratio, size) for ratio, size in pairs)

    def row_weights(self, cohort: Cohort) -> Tensor:
        return torch.ones_like(cohort.weight)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        model = flatten(start(self.sizes[0], streams))
        return {MODEL: model, "round": model.new_zeros(len(model), dtype=torch.int64)}, {}

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        reals = cohort.level.new_tensor([size.size for size in self.sizes])
        return Broadcast({MODEL: server[MODEL]}, reals_of=reals[cohort.level])

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        received = broadcast.blocks[MODEL]
        payload, loss = train_slices(
            self.sizes, self.config, received, cohort, work, hyper, offset=work.round
        )
        return {}, payload, loss

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        following = torch.full_like(server["round"], round + 1)
        return {MODEL: moved(server[MODEL], received), "round": following}

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        model, following = server[MODEL], server["round"]
        models = [model.new_empty(len(model), size.size) for size in self.sizes]
        for offset in following.unique().tolist():  # one, but for trials that nothing came to
            rows = (following == offset).nonzero().squeeze(1)
            for whole, own in zip(models, slices(self.sizes, model[rows], offset), strict=True):
                whole[rows] = own
        return level_views(self.sizes, models)

    def flops(self, samples: int) -> float:
        return self.sizes[0].training_flops(samples)
