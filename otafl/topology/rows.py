"""Lay out the rows of a stack: trials of points, and in each of them its servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from otafl.core.rng import Streams
from otafl.data import Samples

SERVER_BITS = 32
"""Server c of trial t draws as trial t + c 2^32 of a run with one server; server 0 as trial t."""

LINK_BITS = 52
"""And as (l + 1) 2^52 more for links beside those of its devices to itself."""


def derive_trial_number(trial: int, server: int) -> int:
    """Return the number of the trial as which a server of a trial draws."""
    return trial + (server << SERVER_BITS)


@dataclass(frozen=True)
class Rows:
    """Hold the rows of a stack of S trials with C servers each, trial by trial.

    scenarios: S C, each as one server knows it. given: S C, as they were. streams: of the rows.
    first: of the first server of each row's trial. trials: of the S trials. servers: C. numbers: of
    the rows.
    """

    scenarios: Sequence[Any]
    given: Sequence[Any]
    streams: Streams
    first: Streams
    trials: Streams
    servers: int
    numbers: Sequence[int]

    @staticmethod
    def build(
        scenarios: Sequence[Any], trials: Sequence[int], device: torch.device, dtype: torch.dtype
    ) -> Rows:
        """Lay out the rows of S trials: their scenarios, which share a stack, and numbers."""
        servers = range(scenarios[0].topology.count(scenarios[0]))
        seeds = [one.seed for one in scenarios for _ in servers]
        numbers = [derive_trial_number(trial, server) for trial in trials for server in servers]
        streams = Streams(seeds, numbers, device, dtype)
        whole = first = streams
        if len(servers) > 1:
            whole = Streams(seeds[:: len(servers)], trials, device, dtype)
            first = Streams(seeds, [trial for trial in trials for _ in servers], device, dtype)
        given = [one for one in scenarios for _ in servers]
        rows = [one.topology.make_server_scenario(one) for one in given]
        return Rows(rows, given, streams, first, whole, len(servers), numbers)

    def get_link_streams(self, index: int) -> Streams:
        """Return streams for further links of the rows."""
        seeds = [row.seed for row in self.scenarios]
        numbers = [number + (index + 1 << LINK_BITS) for number in self.numbers]
        return Streams(seeds, numbers, self.streams.device, self.streams.dtype)

    def partition_samples(self, build: Callable[..., Samples], devices: int) -> Samples:
        """Deal the data set out over the K devices of each server anew, or once over all C K of a
        trial, as the topology says. build: as `data.build`."""
        first = self.scenarios[0]
        sections = [row.data for row in self.scenarios]
        whole = self.trials if first.topology.partition_scope == "all" else None
        return build(sections, devices, first.training, self.streams, whole)
