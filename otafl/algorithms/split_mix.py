"""Train as many narrow networks as each device can, and mix their predictions (Split-Mix).

The network is split into M narrow ones, the atoms, that share nothing. A device of budget b trains
b of them on the same minibatches: the first is the next in a shuffled queue that all devices share,
which is shuffled anew when it is used up; the others are uniform among the rest. Each atom becomes
its mean over the devices that trained it; atoms that nobody trained stay. A model of budget b
predicts by the mean of the scores of b atoms.

The queue's place is known to the server, which tells each device where it stands: devices that
take part in a round follow each other in the order of their numbers, and the next round goes on
after as many as were in the slot, heard or not.

References
----------
Hong, Wang, Wang, Zhou 2022, "Efficient Split-Mix Federated Learning for On-Demand and In-Situ
    Customization", Algorithms 1 and 2.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from otafl.algorithms import width_slices
from otafl.algorithms.base import Algorithm, Outcome, Views
from otafl.algorithms.level_training import (
    LevelsSettings,
    Ratio,
    levels_of,
    local_flops,
    sent_to_levels,
)
from otafl.algorithms.parameters import draws
from otafl.algorithms.width_slices import WidthRule, descending, width_rule
from otafl.core import contracts as c
from otafl.core.constants import constant
from otafl.core.rng import Streams, purpose
from otafl.models.base import Count, Model, flatten, unflatten
from otafl.models.network import Network

QUEUE = purpose("split_mix/queue", __name__)
OTHERS = purpose("split_mix/others", __name__)


class SplitMix(Algorithm):
    """Keeps server blocks "model" [S, M P], the atoms side by side; "dealt" [S] int64, how many
    devices took from the queue. No device state. Tested are the first b atoms."""

    averages: ClassVar[bool] = True

    class Settings(LevelsSettings):
        name: Literal["split_mix"] = "split_mix"
        atom: Ratio = 0.125
        """width of each of the narrow networks"""
        levels: Annotated[tuple[Count, ...], AfterValidator(descending)] = Field(
            (8, 4, 2, 1), min_length=1
        )
        """how many of the networks a device of each level trains, the largest first; the first is
        how many there are"""
        width_rule: WidthRule = width_rule()

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        self.atom = width_slices.network(model, settings.atom, settings.width_rule, settings.name)
        self.atoms = settings.levels[0]
        super().__init__(settings, self.atom, devices)

    def levels(self) -> tuple[c.Submodel, ...]:
        budgets = self.settings.levels
        ratios, networks = [b / self.atoms for b in budgets], [self.atom] * len(budgets)
        return levels_of(ratios, networks, self.level_flops, budgets)

    def row_weights(self, context: c.Context) -> Tensor:
        return torch.ones_like(context.cohort.weight)

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        starts = [self.atom.init(draws(streams, f"atom{i}/")) for i in range(self.atoms)]
        model = torch.cat([flatten(start) for start in starts], 1)
        return {c.MODEL: model, "dealt": model.new_zeros(len(model), dtype=torch.int64)}, {}

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        """Broadcast the atoms, and the place of each device in the queue, [S, K] int64."""
        counts = cohort.rows_per_trial.long()
        order = torch.arange(cohort.size, device=counts.device)
        ahead = order - (counts.cumsum(0) - counts)[cohort.trial]
        place = counts.new_zeros(cohort.trials * cohort.num_devices)
        place[cohort.cell] = server["dealt"][cohort.trial] + ahead
        blocks = {c.MODEL: server[c.MODEL], "place": place.view(cohort.trials, -1)}
        return sent_to_levels(blocks, cohort, [b * self.atom.size for b in self.settings.levels])

    def local(self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext) -> Outcome:
        cohort, received = context.cohort, broadcast.blocks[c.MODEL]
        place = broadcast.blocks["place"].gather(1, cohort.device[:, None]).squeeze(1)
        first = first_atom(place, cohort.trial, self.atoms, context.streams)
        budget = constant(tuple(self.settings.levels), torch.int64, cohort.level.device)[
            cohort.level
        ]
        has = chosen(first, budget, self.atoms, context)
        row, atom = has.nonzero(as_tuple=True)  # all that is trained is one stack
        pairs = context.work.take(row)
        start = unflatten(self._by_atom(received)[row, atom], self.atom.shapes)
        settings, hyper = self.settings, context.hyper
        increments, losses = width_slices.trained(self.atom, start, pairs, settings, hyper)
        update, mask = torch.zeros_like(received), torch.zeros_like(received)
        self._by_atom(update)[row, atom] = flatten(increments)
        knows = width_slices.known(self.atom, pairs, self.settings.masked_loss)
        self._by_atom(mask)[row, atom] = flatten(knows)
        loss = received.new_zeros(len(received)).index_add_(0, row, losses) / has.sum(1)
        return {}, width_slices.masked(update, mask), loss

    def combine(self, server: c.Tensors, received: c.Received, context: c.Context) -> c.Tensors:
        dealt = server["dealt"] + context.cohort.rows_per_trial.long()
        return {c.MODEL: width_slices.moved(server[c.MODEL], received), "dealt": dealt}

    def views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        views = [self._view(server[c.MODEL], budget) for budget in self.settings.levels]
        return width_slices.by_level(views)

    def _view(self, model: Tensor, budget: int) -> c.View:
        mixed = partial(_mixed, self.atom, budget)
        moments = partial(_moments, self.atom, budget) if self.atom.batch_norms else None
        blocks = {c.MODEL: model[:, : budget * self.atom.size]}
        return c.View(blocks, mixed, moments=moments, together="mean")

    def flops(self, load: c.Workload) -> np.ndarray:
        return self.level_flops(0, load)

    def level_flops(self, level: int, load: c.Workload) -> np.ndarray:
        return self.settings.levels[level] * local_flops(self.atom, self.settings, load)

    def _by_atom(self, flat: Tensor) -> Tensor:
        """View [n, M P] as [n, M, P], the same memory."""
        return flat.view(len(flat), self.atoms, self.atom.size)


def first_atom(place: Tensor, trial: Tensor, atoms: int, streams: Streams) -> Tensor:
    """Return the atom [n] int64 at each place [n] of the queue, which is a new order of all atoms
    every so many places."""
    lap = place // atoms
    order = streams.device_uniform(QUEUE, 0, trial, lap, (atoms,))
    order = order.argsort(dim=1, stable=True)
    return order.gather(1, (place % atoms)[:, None]).squeeze(1)


def chosen(first: Tensor, budget: Tensor, atoms: int, context: c.Context) -> Tensor:
    """Choose the first atom [n] of each row, and budget [n] - 1 others, [n, M] bool."""
    trial, device = context.cohort.trial, context.cohort.device
    draw = context.streams.device_uniform(OTHERS, context.round, trial, device, (atoms,)).clone()
    draw.scatter_(1, first[:, None], -1.0)
    rank = draw.argsort(dim=1, stable=True).argsort(1)
    return rank < budget[:, None]


def _stacked(
    atom: Network, budget: int, blocks: c.Tensors, x: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the atoms of n models as rows [n b, ..] of parameters, and the samples of each."""
    n = len(blocks[c.MODEL])
    params = unflatten(blocks[c.MODEL].reshape(n * budget, -1), atom.shapes)
    own = {name: block.flatten(0, 1) for name, block in blocks.items() if name != c.MODEL}
    return params | own, x if len(x) == 1 else x.repeat_interleave(budget, 0)


def _mixed(atom: Network, budget: int, blocks: c.Tensors, x: Tensor) -> Tensor:
    """Return the mean of the atoms' scores, [n, B, classes]."""
    params, samples = _stacked(atom, budget, blocks, x)
    return atom.logits(params, samples).unflatten(0, (-1, budget)).mean(1)


def _moments(atom: Network, budget: int, blocks: c.Tensors, x: Tensor) -> c.Tensors:
    """Return the statistics of each atom, [n, b, C]."""
    params, samples = _stacked(atom, budget, blocks, x)
    found = atom.moments(params, samples)
    return {name: value.unflatten(0, (-1, budget)) for name, value in found.items()}
