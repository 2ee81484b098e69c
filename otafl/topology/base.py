"""Contract of a topology: the number of servers, their devices, and what servers exchange."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm
from otafl.channels.base import Channel, Positions
from otafl.core import settings
from otafl.core.contracts import Hyper, LinkReport, Tensors
from otafl.core.rng import Streams
from otafl.core.stateful import Stateful
from otafl.topology.handover import Spans
from otafl.uplink.intercell import InterCellInterference

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


PartitionScope = Literal["each", "all"]


@dataclass(frozen=True)
class Exchange:
    """State of the servers after they have exchanged their models.

    Parameters
    ----------
    server : Tensors, [S C, *shape]
        State of each server.
    seconds : ndarray, float64 [S C]
        Duration of the exchange after the slot.
    report : LinkReport, optional
        Report of the exchange, if it takes place over the uplink.
    """

    server: Tensors
    seconds: np.ndarray
    report: LinkReport | None = None


class Topology(Stateful, ABC):
    """Interaction between the rows of a trial.

    Parameters
    ----------
    settings : Topology.Settings
        Settings of the component; trials differ only in stackable fields.
    rows : Rows
        The S C rows of the stack.
    hyper : Hyper
        Stackable fields that are given, [S C] each.

    Attributes
    ----------
    device_streams : Streams
        Random streams [S C] of what a device has: its samples, hardware and faults.
    """

    exchanges: ClassVar[bool] = False
    """Whether servers exchange their models (`exchange`)."""

    together: bool = False
    """Whether the slots of a trial's servers open together, when the last one is ready."""

    class Settings(settings.Settings):
        """Section `topology` of a scenario."""

        def count(self, scenario: Any) -> int:
            """Return the number of servers of a trial, C."""
            return 1

        @property
        def partition_scope(self) -> PartitionScope:
            """Scope of a partition: the devices of each server, or all devices of a trial."""
            return "each"

        def make_server_scenario(self, scenario: Any) -> Any:
            """Return the scenario of one server, with its part of the band."""
            return scenario

    def __init__(self, settings: Any, rows: Rows, hyper: Hyper) -> None:
        self.settings, self.rows, self.hyper = settings, rows, hyper
        self.device_streams = rows.streams

    @property
    def first_devices(self) -> list[int]:
        """Number [S C] of each row's first device, if hardware depends on the number."""
        return [0] * len(self.rows.scenarios)

    @property
    def init_streams(self) -> Streams:
        """Streams [S C] of the initial models."""
        return self.rows.streams

    def get_uplink_channel(self, channel: Channel) -> Channel:
        """Return the channel between devices and servers; by default that of the scenario."""
        return channel

    def build_intercell(self, channel: Channel) -> InterCellInterference | None:
        """Build the inter-cell interference between the servers.

        Parameters
        ----------
        channel : Channel
            Channel between each server and its own devices.

        Returns
        -------
        InterCellInterference, optional
            The interference; None without any.
        """
        return None

    def list_presence(self, channel: Channel) -> list[list[Spans]] | None:
        """List the intervals in which each server has each device, [S C][K].

        Parameters
        ----------
        channel : Channel
            Channel between devices and servers.

        Returns
        -------
        list of list of Spans, optional
            Intervals in seconds; None if the channel does not decide them.
        """
        if channel.presence_s is None:
            return None
        spans: list[Spans] = [[(start_s, end_s)] for start_s, end_s in channel.presence_s.tolist()]
        return [spans for _ in self.rows.scenarios]

    def get_positions(self, channel: Channel, round: int, trial: int = 0) -> Positions | None:
        """Return the positions of a trial's devices and servers, None if there are none.

        Parameters
        ----------
        channel : Channel
            Channel between devices and servers.
        round : int
            Number of the round.
        trial : int
            Position of the trial in the stack.

        Returns
        -------
        Positions, optional
            Positions in metres.
        """
        return channel.get_positions(round, trial)

    def exchange(
        self, server: Tensors, share: Tensor, round: int, algorithm: Algorithm
    ) -> Exchange | None:
        """Exchange the models of servers after a round; called only if `exchanges` is True.

        Parameters
        ----------
        server : Tensors, [S C, *shape]
            State of each server.
        share : Tensor, [S C, K]
            Number of training samples of each device, its weight.
        round : int
            Number of the round.
        algorithm : Algorithm
            Method, which exports and imports models.

        Returns
        -------
        Exchange, optional
            New state of the servers; None without an exchange.
        """
        return None

    def compute_metrics(self, server: Tensors, algorithm: Algorithm) -> dict[str, np.ndarray]:
        """Compute further results so far, name of `otafl.results.variables` -> [S C]."""
        return {}
