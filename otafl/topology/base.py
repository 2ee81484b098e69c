"""Define a topology: how many servers there are, whose devices reach them, and what they tell each
other."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from otafl.algorithms.base import Algorithm
from otafl.channels.base import Channel
from otafl.channels.positions import Positions
from otafl.core import settings
from otafl.core.contracts import Hyper, LinkReport, Tensors
from otafl.core.rng import Streams
from otafl.core.stateful import Stateful
from otafl.topology.rows import Rows
from otafl.uplink.intercell import InterCellInterference

PartitionScope = Literal["each", "all"]


@dataclass(frozen=True)
class Exchange:
    """Hold what servers have after they told each other of their models.

    server: blocks [S C, *shape]. seconds: [S C] that this took each after the slot. report: of the
    slot, where it was in this that they told each other.
    """

    server: Tensors
    seconds: np.ndarray
    report: LinkReport | None = None


class Topology(Stateful, ABC):
    """Say where the rows of a trial meet.

    Parameters
    ----------
    settings : the topology's, of its class `Settings`; trials differ in stackable fields alone.
    rows : the S C rows of the stack.
    hyper : the stackable fields that are given, [S C] each.
    """

    together: bool = False
    """The slots of a trial's servers open at the same instant, that of the last."""

    class Settings(settings.Settings):
        """Hold the section `topology` of a scenario."""

        def count(self, scenario: Any) -> int:
            """Return the servers of a trial, C."""
            return 1

        @property
        def partition_scope(self) -> PartitionScope:
            """Return to whom the data set is dealt out: to each server's devices, or to all."""
            return "each"

        def make_server_scenario(self, scenario: Any) -> Any:
            """Return the scenario with the part of the band that one server has."""
            return scenario

    def __init__(self, settings: Any, rows: Rows, hyper: Hyper) -> None:
        self.settings, self.rows, self.hyper = settings, rows, hyper

    @property
    def first_devices(self) -> list[int]:
        """Return the number [S C] of each row's first device, where devices differ by number."""
        return [0] * len(self.rows.scenarios)

    @property
    def init_streams(self) -> Streams:
        """Return the streams [S C] that models start from."""
        return self.rows.streams

    def get_uplink_channel(self, channel: Channel) -> Channel:
        """Return the channel by which servers are reached: by default the scenario's."""
        return channel

    def build_intercell(self, channel: Channel) -> InterCellInterference | None:
        """Return what servers hear of each other's devices; None where they hear nothing.

        channel: of each server's own devices.
        """
        return None

    def get_positions(self, channel: Channel, round: int) -> Positions | None:
        """Return where the devices and servers of the first trial are; None where nobody knows.

        channel: by which servers are reached.
        """
        return channel.get_positions(round)

    def exchange(
        self, server: Tensors, share: Tensor, round: int, algorithm: Algorithm
    ) -> Exchange | None:
        """Let servers tell each other of their models after a round; None where they do not.

        Parameters
        ----------
        server : blocks [S C, *shape].
        share : [S C, K], how much each device counts, its training samples.
        """
        return None

    def compute_metrics(self, server: Tensors, algorithm: Algorithm) -> dict[str, np.ndarray]:
        """Return further results so far, name of `otafl.results.variables` -> [S C]."""
        return {}
