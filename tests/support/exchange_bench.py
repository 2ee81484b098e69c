"""Runs rounds of a method outside the engine, some devices absent and some of what is sent lost:
what both sides of a twin test need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from support.rival_rounds import Rounds, make_received
from torch import Tensor
from twins.network import Array, Minibatch
from twins.setting import minibatch

from otafl.core.contracts import Cohort, LocalData, Payload, Tensors
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


class Bench(Rounds):
    """Runs a method over two trials of five devices, float64, in two halves of a round."""

    def __init__(
        self, settings: Any, model: Mlp, hyper: dict[str, list[float]], steps: int = 2
    ) -> None:
        super().__init__(settings.name, model, settings.model_dump(), steps, SIZES, **hyper)
        self.model, self.steps = model, steps
        self.sent: Payload = ()
        self.loss = torch.zeros(0)

    def select_local_data(self, cohort: Cohort, t: int) -> LocalData:
        return self.data.select_cohort(t, cohort)

    def local(self, cohort: Cohort, t: int) -> None:
        """Broadcast, and do local work."""
        before = {name: block.clone() for name, block in self.server.items()}
        rows = self.method.broadcast(self.server, cohort).expand_rows(cohort, 0, cohort.num_rows)
        own = {n: b.flatten(0, 1)[cohort.flat_index] for n, b in self.devices.items()}
        state, self.sent, self.loss = self.method.run_local_update(
            rows, own, self.make_context(cohort, t)
        )
        for name, block in state.items():
            self.devices[name].flatten(0, 1)[cohort.flat_index] = block
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

    def draw_batches(self, cohort: Cohort, t: int, draw: int = 0) -> list[list[Minibatch]]:
        """Return the minibatches, [row][step]."""
        work = self.select_local_data(cohort, t)
        each = [work.draw_batch(step, draw) for step in range(self.steps)]
        return [[minibatch(b, row) for b in each] for row in range(cohort.num_rows)]


def to_vector(params: Tensors, model: Mlp, *place: int) -> Array:
    """Put the parameters at a place side by side."""
    parts = [params[name][place].flatten() for name in model.shapes]
    return torch.cat(parts).double().numpy().copy()


def get_prefixed(bench: Bench, prefix: str, s: int, k: int) -> Array:
    """Put a device's parameters with a prefix side by side."""
    params = {name: bench.devices[f"{prefix}.{name}"] for name in bench.model.shapes}
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
