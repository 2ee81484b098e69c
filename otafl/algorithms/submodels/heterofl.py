"""Networks of each device's width, with the first channels of every layer (HeteroFL).

A device of width a trains the first a C channels of every layer with C channels. Each parameter
becomes its mean over the devices that trained it; on the classifier these are the devices that have
samples of the class. All start from the broadcast slice, so the server adds the mean of the
increments. Masked increments superpose over the air, so the transport need not separate devices.

With `aggregation: own` each level has a model of its own, federated among the devices of that
level. With one level it is federated averaging of a narrow network.

References
----------
Diao, Ding, Tarokh 2021, "HeteroFL: Computation and Communication Efficient Federated Learning for
    Heterogeneous Clients", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, Views
from otafl.algorithms.parameters import make_draw
from otafl.algorithms.submodel_training import count_level_flops, group_by_level, make_submodels
from otafl.algorithms.submodels import width_slices
from otafl.algorithms.submodels.width_slices import WidthsSettings, apply_masked_mean, train_slices
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
    r"""Federated learning of networks of several widths.

    The server's tensor "model" [S, P] has the parameters of the largest network; with `aggregation:
    own` those of all networks, side by side. Devices have no state.

    Notes
    -----
    S(i, j) are the devices whose slice has the coordinate (i, j):

    .. math::

        W[i, j] \leftarrow \frac{1}{|S(i, j)|} \sum_{p \in S(i, j)} W_p[i, j]

    A coordinate without a device stays unchanged.

    Examples
    --------
    `studies/fedhm/fedhm_table2.yaml` compares it with FedHM.
    """

    averages_increments: ClassVar[bool] = True

    excludes: ClassVar[Mapping[str, str]] = {
        "start": "draws a network of several widths",
        "tokens": "trains a model at several widths",
    }

    class Settings(WidthsSettings):
        name: Literal["heterofl"] = "heterofl"
        aggregation: Literal["shared", "own"] = "shared"
        """models of the levels: shared, slices of one model; own, a model for each level, federated
        among the devices of that level"""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        self.submodels = width_slices.build_networks(settings, model, settings.name)
        self.shared = settings.aggregation == "shared"
        super().__init__(settings, self.submodels[0], devices)
        self.levels = make_submodels(
            settings.levels, self.submodels, partial(count_level_flops, settings, self.submodels)
        )

    def compute_weights(self, context: Context) -> Tensor:
        return torch.ones_like(context.cohort.weight)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        models = [
            flatten(size.init(make_draw(streams, f"level{level}/" if level else "")))
            for level, size in enumerate(self.submodels[:1] if self.shared else self.submodels)
        ]
        return {MODEL: torch.cat(models, 1)}, {}

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        received = broadcast.tensors[MODEL]
        if self.shared:
            return train_slices(self.submodels, self.settings, received, context)
        return self._train_level(received, context)

    def _train_level(self, received: Tensor, context: LocalContext) -> Outcome:
        """Train each row's model, with one payload group for each level."""
        groups, loss = [], received.new_zeros(len(received))
        rows_per_trial = group_by_level(context.cohort, len(self.submodels))
        for model, size, rows in zip(
            self._split_models(received), self.submodels, rows_per_trial, strict=True
        ):
            update = model.new_zeros(len(rows), size.num_params)
            mask = torch.ones_like(update)
            if len(rows):
                work = context.local_data.take(rows)
                start = unflatten(model.index_select(0, rows), size.shapes)
                increments, loss[rows] = width_slices.train_increments(
                    size, start, work, self.settings, context.hyper
                )
                update = flatten(increments)
                mask = flatten(width_slices.build_mask(size, work, self.settings.masked_loss))
            groups.append(
                Group({MODEL: update}, rows, {MODEL: mask} if self.settings.masked_loss else None)
            )
        return {}, tuple(groups), loss

    def update_server(self, server: Tensors, received: Received, context: Context) -> Tensors:
        if self.shared:
            return {MODEL: apply_masked_mean(server[MODEL], received)}
        models = [
            apply_masked_mean(model, received, level)
            for level, model in enumerate(self._split_models(server[MODEL]))
        ]
        return {MODEL: torch.cat(models, 1)}

    def build_views(self, server: Tensors, devices: Tensors) -> Views:
        sizes, model = self.submodels, server[MODEL]
        if self.shared:
            return width_slices.build_submodel_views(
                sizes, width_slices.slice_submodels(sizes, model)
            )
        return width_slices.build_submodel_views(sizes, self._split_models(model))

    def _split_models(self, flat: Tensor) -> tuple[Tensor, ...]:
        """Split the models [.., P] of the levels, which are side by side."""
        return flat.split([size.num_params for size in self.submodels], 1)
