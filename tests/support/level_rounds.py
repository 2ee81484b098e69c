"""Runs rounds of methods with submodels over an ideal uplink: two trials of five devices."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from twins.setting import everyone, local_data

from otafl.algorithms.base import Algorithm
from otafl.core.contracts import Cohort, Context, LocalContext, Payload, Received
from otafl.core.rng import Streams
from otafl.uplink.groups import compute_error_free, make_signal

WIDTHS = (6, 8, 5, 3)
SIZES = [[20, 10, 2, 30, 1], [9, 9, 25, 4, 40]]
STEPS = 3
HYPER = {"learning_rate": [0.3, 0.05], "momentum": [0.9, 0.5], "weight_decay": [0.01, 0.1]}


class LevelRounds:
    """Devices of the given levels [2][5]; the server's blocks are those after the last round."""

    def __init__(self, method: Algorithm, levels: list[list[int]], inputs: int = WIDTHS[0]) -> None:
        self.streams = Streams([5, 5], [0, 1], dtype=torch.float64)
        self.hyper = {name: torch.tensor(v, dtype=torch.float64) for name, v in HYPER.items()}
        everybody = everyone(torch.tensor(SIZES, dtype=torch.float64))
        everybody = replace(everybody, capacity_level=torch.tensor(levels).flatten())
        weight = method.compute_weights(Context(everybody, {}, self.streams, 0))
        self.cohort = replace(everybody, weight=weight)
        self.data = local_data(SIZES, inputs, WIDTHS[-1], self.streams, 4, STEPS)
        self.server, devices = method.init(self.streams, self.hyper)
        self.levelled = method
        assert devices == {}

    def local(self, cohort: Cohort, t: int) -> tuple[Payload, Tensor]:
        before = {name: block.clone() for name, block in self.server.items()}
        broadcast = self.levelled.broadcast(self.server, cohort)
        broadcast = broadcast.expand_rows(cohort, 0, cohort.num_rows)
        work = self.data.select_cohort(t, cohort)
        context = LocalContext(cohort, self.hyper, self.streams, t, work)
        _, payload, loss = self.levelled.run_local_update(broadcast, {}, context)
        assert all(torch.equal(self.server[name], block) for name, block in before.items())
        return payload, loss

    def round(self, cohort: Cohort, t: int) -> Tensor:
        payload, loss = self.local(cohort, t)
        pairs = [compute_error_free(make_signal(group, cohort)) for group in payload]
        received = Received(tuple(m for m, _ in pairs), tuple(n for _, n in pairs), None, None)
        context = Context(cohort, self.hyper, self.streams, t)
        self.server = self.levelled.update_server(self.server, received, context)
        return loss
