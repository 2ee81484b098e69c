"""Train networks cut to each device's width: the first channels of every layer (HeteroFL).

A device of width a trains the first a C channels of every layer of C, and each parameter becomes
its mean over the devices that trained it,

    W[i, j] <- (1 / |S(i, j)|) sum_{p in S(i, j)} W_p[i, j]

S(i, j) being the devices whose slice has (i, j), and on the classifier those that have samples of
the class; others stay. All start from the broadcast slice, so the mean of what was added to it is
the same step. Masked increments superpose, so no device is told apart.

With `aggregation: own` each size is a model of its own, federated among the devices of its level.
With one level it is federated averaging of a slim network.

References
----------
Diao, Ding, Tarokh 2021, "HeteroFL: Computation and Communication Efficient Federated Learning for
    Heterogeneous Clients", Algorithm 1.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.algorithms import width_slices
from otafl.algorithms.base import Algorithm, Outcome, Views
from otafl.algorithms.level_training import buckets
from otafl.algorithms.parameters import draws
from otafl.algorithms.width_slices import WidthsSettings, moved, train_slices
from otafl.core.contracts import (
    MODEL,
    Broadcast,
    Context,
    Group,
    Hyper,
    LocalContext,
    Received,
    Tensors,
)
from otafl.core.rng import Streams
from otafl.models.base import Model, flatten, unflatten


class HeteroFL(Algorithm):
    """Keeps server block "model" [S, P]: the parameters of the largest network; with `aggregation:
    own` of all of them, side by side. No device state."""

    averages: ClassVar[bool] = True

    class Settings(WidthsSettings):
        name: Literal["heterofl"] = "heterofl"
        aggregation: Literal["shared", "own"] = "shared"
        """shared: one model, of which the levels are slices. own: a model for each level, federated
        among the devices of that level alone"""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        self.sizes = width_slices.networks(settings, model, settings.name)
        self.shared = settings.aggregation == "shared"
        super().__init__(settings, self.sizes[0], devices)

    def row_weights(self, context: Context) -> Tensor:
        return torch.ones_like(context.cohort.weight)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        models = [
            flatten(size.init(draws(streams, f"level{level}/" if level else "")))
            for level, size in enumerate(self.sizes[:1] if self.shared else self.sizes)
        ]
        return {MODEL: torch.cat(models, 1)}, {}

    def local(self, broadcast: Broadcast, devices: Tensors, context: LocalContext) -> Outcome:
        received = broadcast.blocks[MODEL]
        if self.shared:
            return train_slices(self.sizes, self.settings, received, context)
        return self._train_own(received, context)

    def _train_own(self, received: Tensor, context: LocalContext) -> Outcome:
        """Train each row's model: a group for each level, with the rows of that level; loss [n]."""
        groups, loss = [], received.new_zeros(len(received))
        rows_per_trial = buckets(context.cohort, len(self.sizes))
        for model, size, rows in zip(
            self._apart(received), self.sizes, rows_per_trial, strict=True
        ):
            update = model.new_zeros(len(rows), size.size)
            mask = torch.ones_like(update)
            if len(rows):
                work = context.work.take(rows)
                start = unflatten(model.index_select(0, rows), size.shapes)
                increments, loss[rows] = width_slices.trained(
                    size, start, work, self.settings, context.hyper
                )
                update = flatten(increments)
                mask = flatten(width_slices.known(size, work, self.settings.masked_loss))
            groups.append(
                Group({MODEL: update}, rows, {MODEL: mask} if self.settings.masked_loss else None)
            )
        return {}, tuple(groups), loss

    def combine(self, server: Tensors, received: Received, context: Context) -> Tensors:
        if self.shared:
            return {MODEL: moved(server[MODEL], received)}
        models = [
            moved(model, received, level) for level, model in enumerate(self._apart(server[MODEL]))
        ]
        return {MODEL: torch.cat(models, 1)}

    def views(self, server: Tensors, devices: Tensors) -> Views:
        sizes, model = self.sizes, server[MODEL]
        if self.shared:
            return width_slices.level_views(sizes, width_slices.slices(sizes, model))
        return width_slices.level_views(sizes, self._apart(model))

    def _apart(self, flat: Tensor) -> tuple[Tensor, ...]:
        """Split the levels' own models [.., P] that lie side by side in one."""
        return flat.split([size.size for size in self.sizes], 1)
