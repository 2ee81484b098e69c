"""Networks of each device's width, sliced from one network (HeteroFL, FedRolex).

A device of width a trains the first a C channels of every layer with C channels. Each parameter
becomes its mean over the devices that trained it; on the classifier these are the devices that have
samples of the class. All start from the broadcast slice, so the server adds the mean of the
increments. Masked increments superpose over the air, so the transport need not separate devices.

With one level it is federated averaging of a narrow network.

FedRolex is HeteroFL with channels that roll on from round to round. Within C rounds it trains all C
channels of a layer equally often.

References
----------
Diao, Ding, Tarokh 2021, "HeteroFL: Computation and Communication Efficient Federated Learning for
    Heterogeneous Clients", Algorithm 1.
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
from otafl.algorithms.submodels import width_slices
from otafl.core import contracts as c
from otafl.core.rng import Streams
from otafl.models.base import Model


class SlicingMethod(Algorithm):
    """A method whose levels are slices of one network, averaged without weights."""

    averages_increments: ClassVar[bool] = True

    excludes: ClassVar[Mapping[str, str]] = {
        "start": "draws a network of several widths",
        "tokens": "trains a model at several widths",
    }

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        self.submodels = width_slices.build_networks(settings, model, settings.name)
        super().__init__(settings, self.submodels[0], devices)
        self.levels = make_submodels(
            settings.levels, self.submodels, partial(count_level_flops, settings, self.submodels)
        )

    def compute_weights(self, context: c.Context) -> Tensor:
        return torch.ones_like(context.cohort.weight)

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        return {c.MODEL: width_slices.apply_masked_mean(server[c.MODEL], received)}


class HeteroFL(SlicingMethod):
    r"""Federated learning of networks of several widths.

    The server's tensor "model" [S, P] has the parameters of the largest network. Devices have no
    state.

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

    class Settings(width_slices.WidthsSettings):
        name: Literal["heterofl"] = "heterofl"

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        received = broadcast.tensors[c.MODEL]
        return width_slices.train_slices(self.submodels, self.settings, received, context)

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        models = width_slices.slice_submodels(self.submodels, server[c.MODEL])
        return width_slices.build_submodel_views(self.submodels, models)


class FedRolex(SlicingMethod):
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

    class Settings(width_slices.WidthsSettings):
        name: Literal["fedrolex"] = "fedrolex"

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        server, devices = super().init(streams, hyper)
        trials = len(server[c.MODEL])
        return server | {"round": server[c.MODEL].new_zeros(trials, dtype=torch.int64)}, devices

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        return super().broadcast({c.MODEL: server[c.MODEL]}, cohort)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        received, offset = broadcast.tensors[c.MODEL], int(context.round)
        return width_slices.train_slices(self.submodels, self.settings, received, context, offset)

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        following = torch.full_like(server["round"], int(context.round) + 1)
        return super().update_server(server, received, context) | {"round": following}

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        model, following = server[c.MODEL], server["round"]
        models = [model.new_empty(len(model), size.num_params) for size in self.submodels]
        for offset in following.unique().tolist():  # one, except for trials without deliveries
            rows = (following == offset).nonzero().squeeze(1)
            slices = width_slices.slice_submodels(self.submodels, model[rows], offset)
            for whole, own in zip(models, slices, strict=True):
                whole[rows] = own
        return width_slices.build_submodel_views(self.submodels, models)
