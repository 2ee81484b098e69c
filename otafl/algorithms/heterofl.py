"""HeteroFL.

Diao, Ding, Tarokh 2021, "HeteroFL: Computation and Communication Efficient Federated Learning for
Heterogeneous Clients", Algorithm 1: a device of width a trains the first a C channels of every
layer of C, and each parameter becomes its mean over the devices that trained it,

    W[i, j] <- (1 / |S(i, j)|) sum_{p in S(i, j)} W_p[i, j]

S(i, j) being the devices whose slice has (i, j), and on the classifier those that have samples of
the class; others stay. All start from the broadcast slice, so the mean of what was added to it is
the same step. Masked increments superpose, so no device is told apart.

With `aggregation: own` each size is a model of its own, federated among the devices of its level.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_widths import HeteroFLConfig
from otafl.algorithms.level_training import buckets
from otafl.algorithms.parameters import MODEL
from otafl.algorithms.whole_models import draws
from otafl.algorithms.width_slices import (
    known,
    level_of,
    level_views,
    moved,
    networks,
    slices,
    train_slices,
    trained,
)
from otafl.core.contracts import (
    Blocks,
    Broadcast,
    Cohort,
    Group,
    Hyper,
    Level,
    Payload,
    Received,
    View,
    Work,
)
from otafl.core.rng import Streams
from otafl.models.base import Model, flatten, unflatten
from otafl.models.network import Network


class HeteroFL:
    """Server block "model" [S, P]: the parameters of the largest network; with `aggregation: own`
    of all of them, side by side. No device state."""

    def __init__(self, config: HeteroFLConfig, model: Model, devices: int) -> None:
        self.config = config
        self.sizes = networks(config, model, config.name)
        self.shared = config.aggregation == "shared"

    def levels(self) -> tuple[Level, ...]:
        pairs = zip(self.config.levels, self.sizes, strict=True)
        return tuple(level_of(ratio, size) for ratio, size in pairs)

    def row_weights(self, cohort: Cohort) -> Tensor:
        return torch.ones_like(cohort.weight)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        def start(level: int, size: Network) -> Tensor:
            return flatten(size.init(draws(streams, f"level{level}/" if level else "")))

        models = [start(*pair) for pair in enumerate(self.sizes[:1] if self.shared else self.sizes)]
        return {MODEL: torch.cat(models, 1)}, {}

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        reals = cohort.level.new_tensor([size.size for size in self.sizes])
        return Broadcast(server, reals_of=reals[cohort.level])

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
        if self.shared:
            payload, loss = train_slices(self.sizes, self.config, received, cohort, work, hyper)
        else:
            payload, loss = self._own(received, cohort, work, hyper)
        return {}, payload, loss

    def _own(
        self, received: Tensor, cohort: Cohort, work: Work, hyper: Hyper
    ) -> tuple[Payload, Tensor]:
        """A group for each level, with the rows of that level."""
        groups, loss = [], received.new_zeros(len(received))
        each = zip(self._apart(received), self.sizes, buckets(cohort, len(self.sizes)), strict=True)
        for model, size, rows in each:
            update = model.new_zeros(len(rows), size.size)
            mask = torch.ones_like(update)
            if len(rows):
                own = work.take(rows)
                start = unflatten(model.index_select(0, rows), size.shapes)
                increments, loss[rows] = trained(size, start, own, self.config, hyper)
                update, mask = flatten(increments), flatten(known(size, own, self.config))
            groups.append(
                Group({MODEL: update}, rows, {MODEL: mask} if self.config.masked_loss else None)
            )
        return tuple(groups), loss

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        if self.shared:
            return {MODEL: moved(server[MODEL], received)}
        models = [
            moved(model, received, level) for level, model in enumerate(self._apart(server[MODEL]))
        ]
        return {MODEL: torch.cat(models, 1)}

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        if self.shared:
            return level_views(self.sizes, slices(self.sizes, server[MODEL]))
        return level_views(self.sizes, self._apart(server[MODEL]))

    def flops(self, samples: int) -> float:
        return self.sizes[0].training_flops(samples)

    def _apart(self, flat: Tensor) -> tuple[Tensor, ...]:
        """The levels' own models [.., P] side by side in one."""
        return flat.split([size.size for size in self.sizes], 1)
