"""Runs rounds of a method outside the engine, some devices absent and some of what is sent lost:
what both sides of a twin test need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from twins.network import Array, Minibatch
from twins.setting import local_data, minibatch

from otafl.core import registry
from otafl.core.contracts import (
    Broadcast,
    Cohort,
    Hyper,
    LocalContext,
    LocalData,
    Payload,
    Received,
    Tensors,
)
from otafl.core.rng import Streams
from otafl.data.training_data import TrainingData
from otafl.engine.device_store import DeviceStore
from otafl.models.mlp import Mlp

WIDTHS = (6, 5, 4, 3)
SIZES = [[20, 11, 3, 30, 7], [9, 8, 25, 4, 40]]
S, K = 2, 5
WHO = [([0, 2, 3], [0, 1, 2, 4]), ([1, 2, 4], [1, 2, 3, 4])]
"""Devices of both trials that take part in each of two rounds."""
LOST = [(0, 2), (1, 4)]
"""The (trial, device) whose payload is lost in each of the rounds."""


def make_cohort(who: Sequence[Sequence[int]], dtype: torch.dtype = torch.float64) -> Cohort:
    trial = torch.tensor([s for s, devices in enumerate(who) for _ in devices])
    device = torch.tensor([k for devices in who for k in devices])
    share = torch.tensor(SIZES, dtype=dtype)
    weight = share[trial, device] / share.sum(1)[trial]
    return Cohort.create(trial, device, weight, tuple(len(d) for d in who), K)


def make_delivered_mask(cohort: Cohort, lost: tuple[int, int]) -> Tensor:
    return ~((cohort.trial == lost[0]) & (cohort.device == lost[1]))


class Bench:
    """Runs a method over two trials of five devices, float64."""

    def __init__(
        self,
        settings: Any,
        model: Mlp,
        hyper: dict[str, list[float]],
        steps: int = 2,
        num_devices: int = K,
    ) -> None:
        self.model = model
        self.streams = Streams([5, 5], [0, 1], dtype=torch.float64)
        self.hyper: Hyper = {n: torch.tensor(v, dtype=torch.float64) for n, v in hyper.items()}
        self.data: TrainingData = local_data(SIZES, WIDTHS[0], WIDTHS[-1], self.streams, 4, steps)
        self.steps = steps
        self.method = registry.make_component("algorithm", settings, model, num_devices)
        self.server, devices = self.method.init(self.streams, self.hyper)
        self.devices = DeviceStore(S, num_devices, self.streams.device, hands_over=True)
        self.devices.add(devices)
        self.sent: Payload = ()
        self.loss = torch.zeros(0)

    def select_local_data(self, cohort: Cohort, t: int) -> LocalData:
        return self.data.select_cohort(t, cohort)

    def make_context(self, cohort: Cohort, t: int) -> LocalContext:
        return LocalContext(cohort, self.hyper, self.streams, t, self.select_local_data(cohort, t))

    def local(self, cohort: Cohort, t: int) -> None:
        """Broadcast, and do local work."""
        sent: Broadcast = self.method.broadcast(self.server, cohort)
        before = {name: block.clone() for name, block in self.server.items()}
        state, self.sent, self.loss = self.method.run_local_update(
            sent.expand_rows(cohort, 0, cohort.num_rows),
            self.devices.get_rows(cohort),
            self.make_context(cohort, t),
        )
        self.devices.put(cohort, state)
        self.check_unchanged(before)

    def combine(self, cohort: Cohort, t: int, delivered_mask: Tensor | None) -> None:
        """Take the server's step, after which the old blocks are as they were."""
        before = {name: block.clone() for name, block in self.server.items()}
        old = self.server
        arrived = make_received(self.sent, cohort, delivered_mask)
        new = self.method.update_server(old, arrived, self.make_context(cohort, t))
        self.check_unchanged(before)  # a trial to which nothing came gets the old blocks back
        self.server = new

    def check_unchanged(self, before: Tensors) -> None:
        for name, block in before.items():
            assert torch.equal(self.server[name], block), name

    def get_state(self, name: str) -> Tensor:
        """Return a device block [S, K, *shape]."""
        return self.devices.get_all()[name]

    def draw_batches(self, cohort: Cohort, t: int, draw: int = 0) -> list[list[Minibatch]]:
        """Return the minibatches, [row][step]."""
        work = self.select_local_data(cohort, t)
        each = [work.draw_batch(step, draw) for step in range(self.steps)]
        return [[minibatch(b, row) for b in each] for row in range(cohort.num_rows)]


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
    ones = torch.ones(cohort.num_trials)
    return Received(tuple(mean), (ones,) * len(payload), tuple(each), None, lost)


def to_vector(params: Tensors, model: Mlp, *place: int) -> Array:
    """Put the parameters at a place side by side."""
    parts = [params[name][place].flatten() for name in model.shapes]
    return torch.cat(parts).double().numpy().copy()


def get_prefixed(bench: Bench, prefix: str, s: int, k: int) -> Array:
    """Put a device's parameters with a prefix side by side."""
    params = {name: bench.get_state(f"{prefix}.{name}") for name in bench.model.shapes}
    return to_vector(params, bench.model, s, k)


def assert_close(ours: Tensor | Array, twin: Array, tolerance: float = 1e-11) -> None:
    np.testing.assert_allclose(np.asarray(ours), twin, rtol=0, atol=tolerance)


def map_rows(cohort: Cohort, s: int) -> dict[int, int]:
    """Return the rows of a trial, device -> row."""
    pairs = zip(cohort.trial.tolist(), cohort.device.tolist(), strict=True)
    return {k: row for row, (trial, k) in enumerate(pairs) if trial == s}


def load_full_batch(bench: Bench, cohort: Cohort, t: int, row: int) -> Minibatch:
    """Return all samples of a device, without padding."""
    whole = minibatch(bench.select_local_data(cohort, t).load_full_batch(), row)
    held = whole.weight > 0
    return Minibatch(whole.x[held], whole.y[held], whole.weight[held])
