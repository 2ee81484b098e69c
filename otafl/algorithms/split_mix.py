"""Split-Mix.

Hong, Wang, Wang, Zhou 2022, "Efficient Split-Mix Federated Learning for On-Demand and In-Situ
Customization", Algorithms 1 and 2: the network is split into M narrow ones, the atoms, that share
nothing. A device of budget b trains b of them on the same minibatches: the first is the next in a
shuffled queue that all devices share, which is shuffled anew when it is used up; the others are
uniform among the rest. Each atom becomes its mean over the devices that trained it; atoms that
nobody trained stay. A model of budget b predicts by the mean of the scores of b atoms.

The queue's place is known to the server, which tells each device where it stands: devices that
take part in a round follow each other in the order of their numbers, and the next round goes on
behind those that arrived.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from otafl.algorithms.config_widths import SplitMixConfig
from otafl.algorithms.parameters import MODEL
from otafl.algorithms.whole_models import draws
from otafl.algorithms.width_slices import (
    known,
    level_of,
    moved,
    network,
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


class SplitMix:
    """Server blocks "model" [S, M P], the atoms side by side; "dealt" [S] int64, how many devices
    took from the queue. No device state. Tested are the first b atoms."""

    def __init__(self, config: SplitMixConfig, model: Model, devices: int) -> None:
        self.config = config
        self.atom = network(model, config.atom, config.width_rule, config.name)
        self.atoms = config.levels[0]

    def levels(self) -> tuple[Level, ...]:
        return tuple(level_of(b / self.atoms, self.atom, b) for b in self.config.levels)

    def row_weights(self, cohort: Cohort) -> Tensor:
        return torch.ones_like(cohort.weight)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        starts = [self.atom.init(draws(streams, f"atom{i}/")) for i in range(self.atoms)]
        model = torch.cat([flatten(start) for start in starts], 1)
        return {MODEL: model, "dealt": model.new_zeros(len(model), dtype=torch.int64)}, {}

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        """The atoms, and the place of each device in the queue, [S, K] int64."""
        counts = cohort.rows_of.long()
        order = torch.arange(cohort.size, device=counts.device)
        ahead = order - (counts.cumsum(0) - counts)[cohort.trial]
        place = counts.new_zeros(cohort.trials * cohort.population)
        place[cohort.cell] = server["dealt"][cohort.trial] + ahead
        blocks = {MODEL: server[MODEL], "place": place.view(cohort.trials, -1)}
        return Broadcast(blocks, reals_of=self._budget(cohort) * self.atom.size)

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
        place = broadcast.blocks["place"].gather(1, cohort.device[:, None]).squeeze(1)
        first = first_atom(place, cohort.trial, self.atoms, streams)
        has = chosen(first, self._budget(cohort), self.atoms, cohort, work.round, streams)
        row, atom = has.nonzero(as_tuple=True)  # all that is trained is one stack
        pairs = work.take(row)
        start = unflatten(self._by_atom(received)[row, atom], self.atom.shapes)
        increments, losses = trained(self.atom, start, pairs, self.config, hyper)
        update, mask = torch.zeros_like(received), torch.zeros_like(received)
        self._by_atom(update)[row, atom] = flatten(increments)
        self._by_atom(mask)[row, atom] = flatten(known(self.atom, pairs, self.config))
        loss = received.new_zeros(len(received)).index_add_(0, row, losses) / has.sum(1)
        return {}, (Group({MODEL: update}, mask={MODEL: mask}),), loss

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        dealt = server["dealt"] + cohort.rows_of.long()
        return {MODEL: moved(server[MODEL], received), "dealt": dealt}

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        each = [self._view(server[MODEL], budget) for budget in self.config.levels]
        return {"global": each[0]} | {f"level{level}": one for level, one in enumerate(each)}

    def _view(self, model: Tensor, budget: int) -> View:
        mixed = partial(_mixed, self.atom, budget)
        moments = partial(_moments, self.atom, budget) if self.atom.batch_norms else None
        return View({MODEL: model[:, : budget * self.atom.size]}, mixed, moments=moments)

    def flops(self, samples: int) -> float:
        return self.atoms * self.atom.training_flops(samples)

    def _budget(self, cohort: Cohort) -> Tensor:
        """[N] int64: how many atoms each row trains."""
        return cohort.level.new_tensor(self.config.levels)[cohort.level]

    def _by_atom(self, flat: Tensor) -> Tensor:
        """[n, M P] as [n, M, P], the same memory."""
        return flat.view(len(flat), self.atoms, self.atom.size)


def first_atom(place: Tensor, trial: Tensor, atoms: int, streams: Streams) -> Tensor:
    """[n] int64: the atom at each place [n] of the queue, which is a new order of all atoms every
    so many places."""
    lap = place // atoms
    order = streams.device_uniform("split_mix/queue", 0, trial, lap, (atoms,))
    order = order.argsort(dim=1, stable=True)
    return order.gather(1, (place % atoms)[:, None]).squeeze(1)


def chosen(
    first: Tensor, budget: Tensor, atoms: int, cohort: Cohort, round: int, streams: Streams
) -> Tensor:
    """[n, M] bool: the first atom [n] of each row, and budget [n] - 1 others."""
    draw = streams.device_uniform(
        "split_mix/others", round, cohort.trial, cohort.device, (atoms,)
    ).clone()
    draw.scatter_(1, first[:, None], -1.0)
    rank = draw.argsort(dim=1, stable=True).argsort(1)
    return rank < budget[:, None]


def _stacked(
    atom: Network, budget: int, blocks: Blocks, x: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """The atoms of n models as rows [n b, ..] of parameters, and the samples of each."""
    n = len(blocks[MODEL])
    params = unflatten(blocks[MODEL].reshape(n * budget, -1), atom.shapes)
    own = {name: block.flatten(0, 1) for name, block in blocks.items() if name != MODEL}
    return params | own, x if len(x) == 1 else x.repeat_interleave(budget, 0)


def _mixed(atom: Network, budget: int, blocks: Blocks, x: Tensor) -> Tensor:
    """The mean of the atoms' scores, [n, B, classes]."""
    params, samples = _stacked(atom, budget, blocks, x)
    return atom.logits(params, samples).unflatten(0, (-1, budget)).mean(1)


def _moments(atom: Network, budget: int, blocks: Blocks, x: Tensor) -> Blocks:
    """Statistics of each atom, [n, b, C]."""
    params, samples = _stacked(atom, budget, blocks, x)
    found = atom.moments(params, samples)
    return {name: value.unflatten(0, (-1, budget)) for name, value in found.items()}
