"""Tiny methods, each of which uses one part of the contract in a way that can be worked out by
hand. What device k of trial s sends in round t is built from `value(s, k, t)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from otafl.algorithms.base import Algorithm
from otafl.core.contracts import (
    Broadcast,
    Cohort,
    Context,
    Group,
    Hyper,
    LocalContext,
    Payload,
    Received,
    Tensors,
    View,
    Workload,
)
from otafl.core.rng import Streams
from otafl.engine.assembly import EngineParts


def value(trial: Any, device: Any, round: Any) -> Any:
    """A number, or a tensor of them, that says whose it is."""
    return 1.0 + 0.1 * trial + device * (device + 1) + 20.0 * round


def of_rows(cohort: Cohort, round: int) -> Tensor:
    """[n]: value of each row."""
    return value(cohort.trial.double(), cohort.device.double(), round)


@dataclass
class Heard:
    """What `combine` was given."""

    round: int
    cohort: Cohort
    received: Received


class Probe(Algorithm):
    """Sends one block "x" of `width` equal numbers; the server adds up what it receives, block by
    block, and keeps what it was given. Devices count the rounds in which they trained."""

    def __init__(self, parts: EngineParts, width: int = 2) -> None:
        super().__init__(self.Settings(), parts.model, parts.samples.sample_share.shape[1])
        self.parts, self.width = parts, width
        self.heard: list[Heard] = []

    def widths(self) -> dict[str, int]:
        return {"x": self.width}

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        trials, devices = self.parts.samples.sample_share.shape
        new = self.parts.samples.sample_share.new_zeros
        server = {name: new(trials, width) for name, width in self.widths().items()}
        return server, {"trained": new(trials, devices, 1)}

    def broadcast(self, server: Tensors, cohort: Cohort) -> Broadcast:
        return Broadcast(server)

    def payload(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Payload:
        return (Group({"x": of_rows(cohort, round)[:, None].repeat(1, self.width)}),)

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> tuple[Tensors, Payload, Tensor]:
        payload = self.payload(broadcast, context.cohort, context.round)
        return (
            {"trained": devices["trained"] + 1},
            payload,
            of_rows(context.cohort, context.round),
        )

    def update_server(self, server: Tensors, received: Received, context: Context) -> Tensors:
        self.heard.append(Heard(context.round, context.cohort, received))
        sums = dict(server)
        for blocks in received.mean:
            sums |= {name: sums[name] + mean for name, mean in blocks.items()}
        return sums

    def build_views(self, server: Tensors, devices: Tensors) -> dict[str, View]:
        classes = self.parts.samples.data.classes

        def predict(blocks: Tensors, x: Tensor) -> Tensor:
            return blocks["x"].sum(1)[:, None, None].expand(-1, x.shape[1], classes)

        return {"global": View(server, predict)}

    def count_flops(self, workload: Workload) -> np.ndarray:
        return np.ones_like(workload.num_samples)
