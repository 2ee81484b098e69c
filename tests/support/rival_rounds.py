"""Runs rounds of a method by hand: stacked trials, devices that take part or not, an exact mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from twins.network import Array, Minibatch
from twins.rivals import plus
from twins.setting import everyone, local_data, minibatch, mlp

from otafl.core import registry
from otafl.core.contracts import (
    Cohort,
    LocalContext,
    LocalData,
    Payload,
    Received,
    Tensors,
)
from otafl.core.rng import Streams
from otafl.data.training_data import TrainingData
from otafl.models.base import Model, unflatten

SIZES = [[20, 10, 3, 30, 7], [9, 9, 25, 4, 40]]
"""Samples of five devices of two trials; two have fewer than a minibatch."""

STEPS = 3
INPUTS, CLASSES = 6, 3
MODEL = mlp((INPUTS, 8, 5, CLASSES))
WHO: list[list[list[int]] | None] = [None, [[0, 2, 3], [1, 4]], [[1, 2], [0, 3, 4]]]
"""Devices of each trial, round by round: all, then some, so that absent ones count."""


RATE, OWN, SERVER = [0.3, 0.05], [0.1, 0.4], [1.0, 0.7]
RATES = {"learning_rate": RATE, "server_learning_rate": SERVER}


@dataclass
class Round:
    """Holds what a round saw and gave, rows of its cohort."""

    cohort: Cohort
    work: LocalData
    payload: Payload
    loss: Tensor


class Rounds:
    """Runs a method over two trials of five devices. server: blocks [2, *shape]; devices: blocks
    [2, 5, *shape]."""

    def __init__(
        self,
        name: str,
        model: Model,
        settings: dict[str, Any] | None = None,
        steps: int = STEPS,
        sizes: list[list[int]] = SIZES,
        dtype: torch.dtype = torch.float64,
        inputs: int = INPUTS,
        **rates: Any,
    ) -> None:
        """steps: local ones. sizes: samples of the devices. rates: stackable fields, a list by
        trial; others have their defaults."""
        config = registry.load_settings_class("algorithm", name).model_validate(settings or {})
        self.method = registry.make_component("algorithm", config, model, 5)
        self.streams = Streams([5, 5], [0, 1], dtype=dtype)
        fields = {n: v for n, v in config.model_dump().items() if type(v) in (float, int)}
        self.hyper = {n: torch.tensor(rates.get(n, [v, v]), dtype=dtype) for n, v in fields.items()}
        self.data: TrainingData = local_data(sizes, inputs, CLASSES, self.streams, 4, steps)
        count = torch.tensor(sizes, dtype=dtype)
        self.all = everyone(count / count.sum(1, keepdim=True))
        self.server, devices = self.method.init(self.streams, self.hyper)
        self.devices: Tensors = {
            name: b.expand(2, 5, *b.shape[2:]).clone() for name, b in devices.items()
        }

    def run_round(self, t: int, who: list[list[int]] | None = None) -> Round:
        """Run a round of these devices of each trial; of everybody, if not given."""
        cohort = self.all
        if who is not None:
            rows = [5 * s + k for s, row in enumerate(who) for k in row]
            cohort = self.all.take(torch.tensor(rows))
        context = self.make_context(cohort, t)
        before = {name: block.clone() for name, block in self.server.items()}
        broadcast = self.method.broadcast(self.server, cohort).expand_rows(
            cohort, 0, cohort.num_rows
        )
        rows_of = {n: b.flatten(0, 1)[cohort.flat_index] for n, b in self.devices.items()}
        with torch.inference_mode():
            state, payload, loss = self.method.run_local_update(broadcast, rows_of, context)
        assert all(torch.equal(self.server[name], block) for name, block in before.items())
        assert state.keys() == self.devices.keys()
        self.server = self.method.update_server(
            self.server, receive_exactly(payload, cohort), context
        )
        heard = (torch.ones(cohort.num_rows, 1, dtype=torch.bool),) * len(payload)
        for name, rows in self.method.on_ack(state, payload, heard, context).items():
            self.devices[name].flatten(0, 1)[cohort.flat_index] = rows
        return Round(cohort, context.local_data, payload, loss)

    def make_context(self, cohort: Cohort, t: int) -> LocalContext:
        """Return the cohort's round t."""
        return LocalContext(cohort, self.hyper, self.streams, t, self.data.select_cohort(t, cohort))


def make_received(payload: Payload, cohort: Cohort, delivered_mask: Tensor | None) -> Received:
    """Return the rows, anything where lost, and the mean of what came by data share."""
    if delivered_mask is None:
        delivered_mask = torch.ones_like(cohort.transmit_mask)
    weight = cohort.weight * delivered_mask
    total = torch.zeros(cohort.num_trials, dtype=weight.dtype).index_add_(0, cohort.trial, weight)
    share = weight / total[cohort.trial]
    each, mean = [], []
    for group in payload:
        own, sums = {}, {}
        for name, block in group.tensors.items():
            column = (-1, *[1] * (block.dim() - 1))
            own[name] = torch.where(delivered_mask.view(column), block, 7.0)
            sums[name] = torch.zeros(
                cohort.num_trials, *block.shape[1:], dtype=block.dtype
            ).index_add_(0, cohort.trial, share.view(column) * block)
        each.append(own)
        mean.append(sums)
    lost = None if bool(delivered_mask.all()) else (delivered_mask,) * len(payload)
    ones = cohort.weight.new_ones(cohort.num_trials)
    return Received(tuple(mean), (ones,) * len(payload), tuple(each), None, lost)


def receive_exactly(payload: Payload, cohort: Cohort) -> Received:
    """Take what was sent, and its weighted means."""
    for group in payload:
        kind = group.row_index, group.mask, group.weighting, group.route
        assert kind == (None, None, "mean", "uplink")
    return make_received(payload, cohort, None)


def to_arrays(model: Model, params: Tensors, row: Any) -> list[Array]:
    """Return a row's parameters as the twins have them: weights, then biases."""
    names = sorted(model.shapes, key=lambda name: (name.startswith("bias"), name))
    return [params[name][row].double().numpy().copy() for name in names if name in params]


def draw_batches(one: Round, trial: int, draw: int = 0) -> list[list[Minibatch]]:
    """Return the minibatches of a trial, [device of the cohort][local step]."""
    rows = (one.cohort.trial == trial).nonzero().squeeze(1).tolist()
    stacked = [one.work.draw_batch(step, draw) for step in range(STEPS)]
    return [[minibatch(batch, row) for batch in stacked] for row in rows]


def get_shares(one: Round, trial: int) -> list[float]:
    """Return the shares of all samples of the trial that the devices of the cohort have."""
    return list(one.cohort.weight[one.cohort.trial == trial].double().numpy())


def list_members(one: Round, trial: int) -> list[int]:
    return list(one.cohort.device[one.cohort.trial == trial].numpy())


def compute_losses(one: Round, trial: int) -> Array:
    out: Array = one.loss[one.cohort.trial == trial].double().numpy()
    return out


def read_server(rounds: Rounds, s: int, block: str = "model") -> list[Array]:
    """Return the server's model of a trial as a list."""
    return to_arrays(MODEL, unflatten(rounds.server[block], MODEL.shapes), s)


def read_device(rounds: Rounds, s: int, k: int, prefix: str = "personal.") -> list[Array]:
    """Return a device's kept arrays."""
    own = {n.removeprefix(prefix): b for n, b in rounds.devices.items() if n.startswith(prefix)}
    return to_arrays(MODEL, own, (s, k))


def assert_close(ours: list[Array], theirs: list[Array]) -> None:
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def take_step(old: list[Array], mean: list[Array], server_rate: float) -> list[Array]:
    return plus(old, plus(mean, old, -1.0), server_rate)
