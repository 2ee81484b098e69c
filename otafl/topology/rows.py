"""Rows of a stack: the servers of all trials of all points."""

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
"""Further links of server and trial, with index l, add (l + 1) 2^52 to that number."""


def derive_trial_number(trial: int, server: int) -> int:
    """Return the number of the trial whose random streams a server of a trial uses."""
    return trial + (server << SERVER_BITS)


@dataclass(frozen=True)
class Rows:
    """Rows of a stack of S trials with C servers each, trial by trial.

    Parameters
    ----------
    scenarios : Sequence of Scenario
        S C scenarios, each as one server sees it.
    given : Sequence of Scenario
        S C scenarios as the user gave them.
    streams : Streams
        Random streams of the rows.
    first : Streams
        Random streams of the first server of each row's trial.
    trials : Streams
        Random streams of the S trials.
    servers : int
        Number of servers C.
    numbers : Sequence of int
        Trial number of each row in the random streams.
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
        """Build the rows of S trials.

        Parameters
        ----------
        scenarios : Sequence of Scenario
            Scenarios of the trials, which share a stack.
        trials : Sequence of int
            Numbers of the trials.
        device : torch.device
            Device of the streams.
        dtype : torch.dtype
            Precision of the streams.

        Returns
        -------
        Rows
            The S C rows.
        """
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
        """Return the random streams of further links of the rows."""
        seeds = [row.seed for row in self.scenarios]
        numbers = [number + (index + 1 << LINK_BITS) for number in self.numbers]
        return Streams(seeds, numbers, self.streams.device, self.streams.dtype)

    def partition_samples(self, build: Callable[..., Samples], devices: int) -> Samples:
        """Partition the data set over each server's K devices, or over all C K of a trial.

        `build` is `otafl.data.build` or a function with its arguments.
        """
        first = self.scenarios[0]
        sections = [row.data for row in self.scenarios]
        whole = self.trials if first.topology.partition_scope == "all" else None
        return build(sections, devices, first.training, self.streams, whole)
