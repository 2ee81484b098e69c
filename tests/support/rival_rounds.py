"""Rounds of a method by hand: stacked trials, devices that take part or not, an exact mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from twins.network import Array, Minibatch
from twins.setting import everyone, local_data, minibatch

from otafl.core import registry
from otafl.core.contracts import Blocks, Cohort, Payload, Received
from otafl.core.rng import Streams
from otafl.data.work import LocalData, LocalWork
from otafl.models.base import Model

SIZES = [[20, 10, 3, 30, 7], [9, 9, 25, 4, 40]]
"""Samples of five devices of two trials; two have fewer than a minibatch."""

STEPS = 3
INPUTS, CLASSES = 6, 3


@dataclass
class Round:
    """What a round saw and gave, rows of its cohort."""

    cohort: Cohort
    work: LocalWork
    payload: Payload
    loss: Tensor


class Rounds:
    """A method over two trials of five devices. server: blocks [2, *shape]; devices: blocks [2, 5,
    *shape]."""

    def __init__(
        self,
        name: str,
        model: Model,
        settings: dict[str, Any] | None = None,
        steps: int = STEPS,
        sizes: list[list[int]] = SIZES,
        dtype: torch.dtype = torch.float64,
        **rates: Any,
    ) -> None:
        """steps: local ones. sizes: samples of the devices. rates: stackable fields, a list by
        trial; others have their defaults."""
        config = registry.settings("algorithm", name).model_validate(settings or {})
        self.method = registry.component("algorithm", name)(config, model, 5)
        self.streams = Streams([5, 5], [0, 1], dtype=dtype)
        fields = {n: v for n, v in config.model_dump().items() if type(v) is float}
        self.hyper = {n: torch.tensor(rates.get(n, [v, v]), dtype=dtype) for n, v in fields.items()}
        self.data: LocalData = local_data(sizes, INPUTS, CLASSES, self.streams, 4, steps)
        count = torch.tensor(sizes, dtype=dtype)
        self.all = everyone(count / count.sum(1, keepdim=True))
        self.server, devices = self.method.init(self.streams, self.hyper)
        self.devices: Blocks = {
            name: b.expand(2, 5, *b.shape[2:]).clone() for name, b in devices.items()
        }

    def round(self, t: int, who: list[list[int]] | None = None) -> Round:
        """Of these devices of each trial; everybody, if not given."""
        cohort = self.all
        if who is not None:
            rows = [5 * s + k for s, row in enumerate(who) for k in row]
            cohort = self.all.take(torch.tensor(rows))
        work = self.data.work(t, cohort)
        before = {name: block.clone() for name, block in self.server.items()}
        broadcast = self.method.broadcast(self.server, cohort).rows(cohort, 0, cohort.size)
        rows_of = {n: b.flatten(0, 1)[cohort.cell] for n, b in self.devices.items()}
        state, payload, loss = self.method.local(
            broadcast, rows_of, cohort, work, self.hyper, self.streams
        )
        assert all(torch.equal(self.server[name], block) for name, block in before.items())
        assert state.keys() == self.devices.keys()
        for name, rows in state.items():
            self.devices[name].flatten(0, 1)[cohort.cell] = rows
        received = exact(payload, cohort)
        self.server = self.method.combine(
            self.server, received, cohort, t, self.hyper, self.streams
        )
        return Round(cohort, work, payload, loss)


def exact(payload: Payload, cohort: Cohort) -> Received:
    """The weighted means of what was sent."""
    means = []
    for group in payload:
        assert (group.rows, group.mask, group.weighting, group.route) == (
            None,
            None,
            "mean",
            "uplink",
        )
        means.append(
            {
                name: block.new_zeros(cohort.trials, *block.shape[1:]).index_add_(
                    0,
                    cohort.trial,
                    block * cohort.unit_weight.view(-1, *[1] * (block.dim() - 1)),
                )
                for name, block in group.blocks.items()
            }
        )
    came = cohort.weight.new_ones(cohort.trials)
    return Received(tuple(means), (came,) * len(means), None, None)


def arrays(model: Model, params: Blocks, row: Any) -> list[Array]:
    """A row's parameters as the twins have them: weights, then biases."""
    names = sorted(model.shapes, key=lambda name: (name.startswith("bias"), name))
    return [params[name][row].double().numpy().copy() for name in names if name in params]


def batches(one: Round, trial: int, draw: int = 0) -> list[list[Minibatch]]:
    """[device of the cohort][local step] of a trial."""
    rows = (one.cohort.trial == trial).nonzero().squeeze(1).tolist()
    stacked = [one.work.batch(step, draw) for step in range(STEPS)]
    return [[minibatch(batch, row) for batch in stacked] for row in rows]


def shares(one: Round, trial: int) -> list[float]:
    """Of all samples of the trial, of the devices of the cohort."""
    return list(one.cohort.weight[one.cohort.trial == trial].double().numpy())


def members(one: Round, trial: int) -> list[int]:
    return list(one.cohort.device[one.cohort.trial == trial].numpy())


def losses(one: Round, trial: int) -> Array:
    out: Array = one.loss[one.cohort.trial == trial].double().numpy()
    return out
