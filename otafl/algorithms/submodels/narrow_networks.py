"""Networks of each device's width: slices of one (HeteroFL, FedRolex), or atoms (Split-Mix)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, Views
from otafl.algorithms.parameters import make_draw
from otafl.algorithms.submodel_training import (
    LevelsSettings,
    Ratio,
    broadcast_to_submodels,
    check_descending,
    count_local_flops,
    group_by_level,
    make_submodels,
    select_by_level,
)
from otafl.algorithms.submodels import width_slices
from otafl.algorithms.submodels.width_slices import WidthRule
from otafl.core import contracts as c
from otafl.core.rng import Streams, declare_purpose
from otafl.models.base import Count, Model, flatten, unflatten
from otafl.models.network import Network


class NarrowMethod(Algorithm):
    """A method whose devices train narrow networks, averaged without weights."""

    averages_increments: ClassVar[bool] = True

    excludes: ClassVar[Mapping[str, str]] = {
        "start": "draws networks of several widths",
        "tokens": "trains a model at several widths",
    }

    def compute_weights(self, context: c.Context) -> Tensor:
        return torch.ones_like(context.cohort.weight)

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        return {c.MODEL: width_slices.apply_masked_mean(server[c.MODEL], received)}


class HeteroFL(NarrowMethod):
    r"""Federated learning of networks of several widths, sliced from one network (HeteroFL).

    A device of width a trains the first a C channels of every layer with C channels. Each parameter
    becomes its mean over the devices that trained it; on the classifier these are the devices that
    have samples of the class. All start from the broadcast slice, so the server adds the mean of
    the increments. Masked increments superpose over the air, so the transport need not separate
    devices. With one level it is federated averaging of a narrow network.

    The server's tensor "model" [S, P] has the parameters of the largest network. Devices have no
    state.

    Notes
    -----
    S(i, j) are the devices whose slice has the coordinate (i, j):

    .. math::

        W[i, j] \leftarrow \frac{1}{|S(i, j)|} \sum_{p \in S(i, j)} W_p[i, j]

    A coordinate without a device stays unchanged.

    References
    ----------
    Diao, Ding, Tarokh 2021, "HeteroFL: Computation and Communication Efficient Federated Learning
        for Heterogeneous Clients", Algorithm 1.

    Examples
    --------
    `studies/fedhm/fedhm_table2.yaml` compares it with FedHM.
    """

    class Settings(width_slices.WidthsSettings):
        name: Literal["heterofl"] = "heterofl"

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        method, rule = settings.name, settings.width_rule
        self.submodels = [
            width_slices.build_network(model, ratio, rule, method).replace(
                scale=ratio / settings.levels[0]  # the scaler, section 3
            )
            for ratio in settings.levels
        ]
        super().__init__(settings, self.submodels[0], devices)
        self.levels = make_submodels(settings.levels, self.submodels, self._count_level_flops)

    def _count_level_flops(self, capacity_level: int, workload: c.Workload) -> np.ndarray:
        return count_local_flops(self.submodels[capacity_level], self.settings, workload)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        """Train each row's slice, and send increments and their mask, which superpose."""
        received, offset = broadcast.tensors[c.MODEL], self.get_offset(context)
        update, mask = torch.zeros_like(received), torch.zeros_like(received)
        loss, wide = received.new_zeros(len(received)), self.submodels[0]
        blocks, into, knows = (unflatten(flat, wide.shapes) for flat in (received, update, mask))
        by_level = group_by_level(context.cohort, len(self.submodels))
        for narrow, rows in zip(self.submodels, by_level, strict=True):
            if not len(rows):
                continue
            work = context.local_data.take(rows)
            start = width_slices.slice_params(wide, narrow, blocks, rows, offset)
            increments, loss[rows] = width_slices.train_increments(
                narrow, start, work, self.settings, context.hyper
            )
            known = width_slices.build_mask(narrow, work, self.settings)
            for name, increment in increments.items():
                at = width_slices.index_window(wide, narrow, name, rows, offset)
                into[name][at], knows[name][at] = increment, known[name]
        return {}, (c.Group({c.MODEL: update}, mask={c.MODEL: mask}),), loss

    def get_offset(self, context: c.Context) -> int:
        """Return the first channel that devices train in a round."""
        return 0

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        models = width_slices.slice_submodels(self.submodels, server[c.MODEL])
        return width_slices.build_submodel_views(self.submodels, models)


class FedRolex(HeteroFL):
    r"""Federated learning with rolling submodels (FedRolex).

    HeteroFL with channels that roll on from round to round. Within C rounds it trains all C
    channels of a layer equally often.

    The server's tensors are "model" [S, P], and "round" [S] int64, the next round, whose slices are
    evaluated. Devices have no state.

    Notes
    -----
    In round t, a device that keeps c of the C channels of a layer trains the channels

    .. math::

        t, \ t + 1, \ \ldots, \ t + c - 1 \quad (\mathrm{mod} \ C).

    References
    ----------
    Alam, Liu, Yan, Zhang 2022, "FedRolex: Model-Heterogeneous Federated Learning with Rolling
        Sub-Model Extraction", Algorithm 1.

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

    def get_offset(self, context: c.Context) -> int:
        return int(context.round)

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


QUEUE = declare_purpose("split_mix/queue", __name__)
OTHERS = declare_purpose("split_mix/others", __name__)


class SplitMix(NarrowMethod):
    """Narrow networks, of which each device trains several, with mixed predictions (Split-Mix).

    The network is split into M narrow networks, the atoms, that share nothing. A device of budget b
    trains b of them on the same minibatches. The first is the next in a shuffled queue that all
    devices share, which is shuffled again when it is used up. The others are uniform among the
    rest. Each atom becomes its mean over the devices that trained it, or stays unchanged without
    any. A model of budget b predicts by the mean of the scores of b atoms.

    The server knows the position in the queue and sends each device its own. Participants of a
    round follow each other in the order of their numbers. The next round continues after all
    participants, whether their updates were delivered or not.

    The server's tensors are "model" [S, M P], the atoms side by side, and "dealt" [S] int64. The
    latter is the number of devices that took an atom from the queue. Devices have no state. The
    first b atoms are evaluated.

    References
    ----------
    Hong, Wang, Wang, Zhou 2022, "Efficient Split-Mix Federated Learning for On-Demand and In-Situ
        Customization", Algorithms 1 and 2.

    Examples
    --------
    `studies/fedhm/fedhm_table2.yaml` compares it with FedHM.
    """

    excludes: ClassVar[Mapping[str, str]] = {
        **NarrowMethod.excludes,
        "start": "averages small models that must differ",
    }

    class Settings(LevelsSettings):
        name: Literal["split_mix"] = "split_mix"
        atom: Ratio = 0.125
        """width of each of the narrow networks"""
        levels: Annotated[tuple[Count, ...], AfterValidator(check_descending)] = Field(
            (8, 4, 2, 1), min_length=1
        )
        """number of networks that a device of each level trains, from the largest; the first is the
        number of networks"""
        width_rule: WidthRule = "ceil"

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        self.atom = width_slices.build_network(
            model, settings.atom, settings.width_rule, settings.name
        )
        self.atoms = settings.levels[0]
        super().__init__(settings, self.atom, devices)
        budgets = settings.levels
        ratios, networks = [b / self.atoms for b in budgets], [self.atom] * len(budgets)
        self.levels = make_submodels(ratios, networks, self._count_level_flops, budgets)

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        starts = [self.atom.init(make_draw(streams, f"atom{i}/")) for i in range(self.atoms)]
        model = torch.cat([flatten(start) for start in starts], 1)
        return {c.MODEL: model, "dealt": model.new_zeros(len(model), dtype=torch.int64)}, {}

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        """Broadcast the atoms, and the position of each device in the queue, int64 [S, K]."""
        counts = cohort.rows_per_trial.long()
        order = torch.arange(cohort.num_rows, device=counts.device)
        ahead = order - (counts.cumsum(0) - counts)[cohort.trial]
        place = counts.new_zeros(cohort.num_trials * cohort.num_devices)
        place[cohort.flat_index] = server["dealt"][cohort.trial] + ahead
        blocks = {c.MODEL: server[c.MODEL], "place": place.view(cohort.num_trials, -1)}
        return broadcast_to_submodels(
            blocks, cohort, [b * self.atom.num_params for b in self.settings.levels]
        )

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        cohort, received = context.cohort, broadcast.tensors[c.MODEL]
        place = broadcast.tensors["place"].gather(1, cohort.device[:, None]).squeeze(1)
        # the first atom is that at a position of the queue, a new order of all atoms in each lap
        lap = place // self.atoms
        order = context.streams.draw_device_uniform(QUEUE, 0, cohort.trial, lap, (self.atoms,))
        first = order.argsort(dim=1, stable=True).gather(1, (place % self.atoms)[:, None])
        # and the others are drawn, budget - 1 of them
        budget = select_by_level(self.settings.levels, cohort, torch.int64)
        draw = context.streams.draw_device_uniform(
            OTHERS, context.round, cohort.trial, cohort.device, (self.atoms,)
        ).clone()
        draw.scatter_(1, first, -1.0)
        rank = draw.argsort(dim=1, stable=True).argsort(1)
        has = rank < budget[:, None]
        row, atom = has.nonzero(as_tuple=True)  # all (row, atom) pairs train together
        pairs = context.local_data.take(row)
        start = unflatten(self._split_atoms(received)[row, atom], self.atom.shapes)
        settings, hyper = self.settings, context.hyper
        increments, losses = width_slices.train_increments(self.atom, start, pairs, settings, hyper)
        update, mask = torch.zeros_like(received), torch.zeros_like(received)
        self._split_atoms(update)[row, atom] = flatten(increments)
        knows = width_slices.build_mask(self.atom, pairs, settings)
        self._split_atoms(mask)[row, atom] = flatten(knows)
        loss = received.new_zeros(len(received)).index_add_(0, row, losses) / has.sum(1)
        return {}, (c.Group({c.MODEL: update}, mask={c.MODEL: mask}),), loss

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        num_assigned = server["dealt"] + context.cohort.rows_per_trial.long()
        return super().update_server(server, received, context) | {"dealt": num_assigned}

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        views = [self._make_view(server[c.MODEL], budget) for budget in self.settings.levels]
        return width_slices.name_submodel_views(views)

    def _make_view(self, model: Tensor, budget: int) -> c.View:
        mixed = partial(_average_scores, self.atom, budget)
        moments = partial(_compute_moments, self.atom, budget) if self.atom.batch_norms else None
        blocks = {c.MODEL: model[:, : budget * self.atom.num_params]}
        return c.View(blocks, mixed, moments_fn=moments, ensemble="mean")

    def _count_level_flops(self, capacity_level: int, workload: c.Workload) -> np.ndarray:
        return self.settings.levels[capacity_level] * count_local_flops(
            self.atom, self.settings, workload
        )

    def _split_atoms(self, flat: Tensor) -> Tensor:
        """View [n, M P] as [n, M, P], the same memory."""
        return flat.view(len(flat), self.atoms, self.atom.num_params)


def _combine_atoms(
    atom: Network, budget: int, tensors: c.Tensors, x: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the atoms of n models as rows [n b, ..] of parameters, and the samples of each."""
    n = len(tensors[c.MODEL])
    params = unflatten(tensors[c.MODEL].reshape(n * budget, -1), atom.shapes)
    own = {name: block.flatten(0, 1) for name, block in tensors.items() if name != c.MODEL}
    return params | own, x if len(x) == 1 else x.repeat_interleave(budget, 0)


def _average_scores(atom: Network, budget: int, tensors: c.Tensors, x: Tensor) -> Tensor:
    """Compute the mean of the atoms' scores, [n, B, classes]."""
    params, samples = _combine_atoms(atom, budget, tensors, x)
    return atom.logits(params, samples).unflatten(0, (-1, budget)).mean(1)


def _compute_moments(atom: Network, budget: int, tensors: c.Tensors, x: Tensor) -> c.Tensors:
    """Compute the statistics of each atom, [n, b, C]."""
    params, samples = _combine_atoms(atom, budget, tensors, x)
    found = atom.moments(params, samples)
    return {name: value.unflatten(0, (-1, budget)) for name, value in found.items()}
