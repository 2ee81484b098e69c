"""Contract of a topology: the number of servers, their devices, and what servers exchange."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from otafl.algorithms.base import Algorithm
from otafl.channels.base import Channel, Positions
from otafl.core import settings
from otafl.core.contracts import Hyper, LinkReport, Tensors
from otafl.core.rng import Streams
from otafl.core.stateful import Stateful
from otafl.topology.rows import Rows
from otafl.uplink.intercell import InterCellInterference

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
    """

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

    def get_positions(self, channel: Channel, round: int) -> Positions | None:
        """Return the positions of the first trial's devices and servers, None if there are none.

        Parameters
        ----------
        channel : Channel
            Channel between devices and servers.
        round : int
            Number of the round.

        Returns
        -------
        Positions, optional
            Positions in metres.
        """
        return channel.get_positions(round)

    def exchange(
        self, server: Tensors, share: Tensor, round: int, algorithm: Algorithm
    ) -> Exchange | None:
        """Exchange the models of servers after a round.

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
