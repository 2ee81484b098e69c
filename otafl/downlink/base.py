"""Contract of a downlink, which carries the server's broadcast to the devices.

It computes the time and the bits of the broadcast, and what each device receives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core import settings
from otafl.core.contracts import Broadcast, Cohort, Hyper, LinkBudget, Tensors
from otafl.core.rng import Streams, declare_family

DOWNLINK = declare_family("downlink", __name__)
"""Random streams of all downlinks, of which a scenario has one."""

WORD = 32.0
"""Bits of a number that is sent digitally."""


@dataclass(frozen=True)
class DownlinkSetup:
    """Parts from which every downlink is built.

    Parameters
    ----------
    rate_bps : ndarray [S]
        Bit rate of digital transmission.
    budget : LinkBudget
        Bandwidth of the channel.
    streams : Streams
        Random streams of the S trials.
    hyper : Hyper
        Stackable fields of the downlink, [S] each.
    """

    rate_bps: np.ndarray
    budget: LinkBudget
    streams: Streams
    hyper: Hyper


Distort = Callable[[Tensors, Cohort, Tensor], None]
"""Function that changes tensors [n, *shape] on their way to the rows of a cohort [n], in place.

Its third argument, [n] int64, has the position of each row in the cohort of the transmission.
"""


@dataclass(frozen=True)
class BroadcastDelivery:
    """Broadcast on its way to a cohort of N rows.

    Parameters
    ----------
    sent : Broadcast
        Broadcast of the server.
    seconds : ndarray [S]
        Duration of the transmission.
    bits : ndarray [S]
        Bits of all copies.
    distort : callable, optional
        Changes the tensors on their way; without it they arrive without error.
    delivered_mask : Tensor, bool [N], optional
        Rows that receive the broadcast; all if None.
    row_seconds : ndarray [N], optional
        Seconds until a row has the broadcast, or until the server gives up; the whole duration if
        None.
    row_order : Tensor, int64 [N], optional
        Positions of the rows in the cohort of the transmission; in order if None.
    """

    sent: Broadcast
    seconds: np.ndarray
    bits: np.ndarray
    distort: Distort | None = None
    delivered_mask: Tensor | None = None
    row_seconds: np.ndarray | None = None
    row_order: Tensor | None = None

    @property
    def num_coordinates(self) -> int:
        """Real numbers in one copy."""
        return self.sent.num_coordinates

    def select_rows(self, keep: Tensor) -> BroadcastDelivery:
        """Return the delivery to the rows that `keep` [N] bool selects, as delivered.

        Seconds and bits do not change.
        """
        rows, seconds = keep.nonzero().squeeze(1), self.row_seconds
        return replace(
            self,
            sent=self.sent.select_rows(keep),
            delivered_mask=None,
            row_seconds=None if seconds is None else seconds[rows.cpu().numpy()],
            row_order=rows if self.row_order is None else self.row_order[rows],
        )

    def expand_rows(self, cohort: Cohort, start: int, stop: int) -> Broadcast:
        """Return a copy of what the rows start .. stop - 1 of the cohort receive."""
        own = self.sent.expand_rows(cohort, start, stop)
        if self.distort is not None:
            chunk = cohort if stop - start == cohort.num_rows else cohort.slice_rows(start, stop)
            place = torch.arange(start, stop, device=cohort.trial.device)
            self.distort(
                own.tensors, chunk, place if self.row_order is None else self.row_order[place]
            )
        return own


class Downlink(ABC):
    """Transmission of the server's broadcast to the devices.

    A subclass has a class `Settings`, and returns deliveries in `send`. `otafl list NAME`
    prints an example scenario of each built-in downlink.

    Parameters
    ----------
    settings : Settings
        Settings of the downlink.
    setup : DownlinkSetup
        Parts from which every downlink is built.
    """

    class Settings(settings.Settings):
        """Section `downlink` of a scenario."""

    def __init__(self, settings: Any, setup: DownlinkSetup) -> None:
        self.settings, self.setup = settings, setup

    @abstractmethod
    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> BroadcastDelivery:
        """Send a broadcast to a cohort.

        Parameters
        ----------
        broadcast : Broadcast
            Tensors [S, *shape], or [N, *shape] if they differ between devices.
        cohort : Cohort
            The N rows of the round.
        round : int
            The round.

        Returns
        -------
        BroadcastDelivery
            Duration, bits, and what each row receives.
        """


def count_copies(broadcast: Broadcast, cohort: Cohort) -> np.ndarray:
    """Count the transmissions of a broadcast, [S]: one, or one for each device."""
    if broadcast.per_device:
        return np.array(cohort.counts, dtype=float)
    return np.ones(cohort.num_trials)
