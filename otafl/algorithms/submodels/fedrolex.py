"""Networks of each device's width, whose channels roll on from round to round (FedRolex).

It is HeteroFL with a rolling choice of channels. Within C rounds it trains all C channels of a
layer equally often. The aggregation is that of HeteroFL.

References
----------
Alam, Liu, Yan, Zhang 2022, "FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model
    Extraction", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, Views
from otafl.algorithms.submodel_training import count_level_flops, make_submodels
from otafl.algorithms.submodels.width_slices import (
    WidthsSettings,
    apply_masked_mean,
    build_networks,
    build_submodel_views,
    slice_submodels,
    train_slices,
)
from otafl.core.contracts import (
    MODEL,
    Broadcast,
    Cohort,
    Context,
    Hyper,
    LocalContext,
    Received,
    Tensors,
)
from otafl.core.rng import Streams
from otafl.models.base import Model


class FedRolex(Algorithm):
    r"""Federated learning with rolling submodels.

    The server's tensors are "model" [S, P], and "round" [S] int64, the next round, whose slices are
    evaluated. Devices have no state.

    Notes
    -----
    In round t, a device that keeps c of the C channels of a layer trains the channels

    .. math::

        t, \ t + 1, \ \ldots, \ t + c - 1 \quad (\mathrm{mod} \ C).

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
        name: Literal["fedrolex"] = "fedrolex"

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        self.submodels = build_networks(settings, model, settings.name)
        super().__init__(settings, self.submodels[0], devices)
        self.levels = make_submodels(
            settings.levels, self.submodels, partial(count_level_flops, settings, self.submodels)
        )

    def compute_weights(self, context: Context) -> Tensor:
        return torch.ones_like(context.cohort.weight)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        server, devices = super().init(streams, hyper)
        trials = len(server[MODEL])
        return server | {"round": server[MODEL].new_zeros(trials, dtype=torch.int64)}, devices

    def broadcast(self, server: Tensors, cohort: Cohort) -> Broadcast:
        return super().broadcast({MODEL: server[MODEL]}, cohort)

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        received, offset = broadcast.tensors[MODEL], int(context.round)
        return train_slices(self.submodels, self.settings, received, context, offset)

    def update_server(self, server: Tensors, received: Received, context: Context) -> Tensors:
        following = torch.full_like(server["round"], int(context.round) + 1)
        return {MODEL: apply_masked_mean(server[MODEL], received), "round": following}

    def build_views(self, server: Tensors, devices: Tensors) -> Views:
        model, following = server[MODEL], server["round"]
        models = [model.new_empty(len(model), size.num_params) for size in self.submodels]
        for offset in following.unique().tolist():  # one, except for trials without deliveries
            rows = (following == offset).nonzero().squeeze(1)
            for whole, own in zip(
                models, slice_submodels(self.submodels, model[rows], offset), strict=True
            ):
                whole[rows] = own
        return build_submodel_views(self.submodels, models)
