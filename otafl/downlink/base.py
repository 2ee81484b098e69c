"""Define a downlink: it takes the server's broadcast to the devices, and says how long that takes
and what they hear of it.
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
from otafl.core.contracts import Broadcast, Cohort, Hyper, LinkBudget, Tensors, take_rows
from otafl.core.renamed import Renamed
from otafl.core.rng import Streams, declare_family

DOWNLINK = declare_family("downlink", __name__)
"""The streams of all downlinks, of which a scenario has one."""

WORD = 32.0
"""Bits of a number that is sent digitally."""


@dataclass(frozen=True)
class DownlinkSetup:
    """Hold what every downlink is built from. rate_bps: [S] of what is sent digitally. hyper: its
    own stackable fields."""

    rate_bps: np.ndarray
    budget: LinkBudget
    streams: Streams
    hyper: Hyper


Distort = Callable[[Tensors, Cohort, Tensor], None]
"""Change blocks [n, *shape] on their way to the rows of a cohort [n], in place, given which of the
rows that were sent to these are, [n] int64."""


@dataclass(frozen=True)
class Delivery(Renamed):
    """Hold a broadcast on its way to a cohort.

    sent: what the server sent. seconds: [S] until it is over. bits: [S], all copies together.
    distort: None where it arrives without error. delivered_mask: [N] bool, rows that got it; None
    for all.
    row_seconds: [N] from the start until a row has it, or is given up; None where all have it when
    it is over. row_order: [N] int64, which of the rows that were sent to these are; None for all.
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
        """Return the real numbers in one copy."""
        return self.sent.num_coordinates

    def select_rows(self, keep: Tensor) -> Delivery:
        """Return the arrival at the rows [N] bool alone, as if all of them had it; seconds and bits
        stay what they are."""
        rows, sent, seconds = keep.nonzero().squeeze(1), self.sent, self.row_seconds
        if sent.per_device:
            sent = replace(
                sent, tensors={name: take_rows(b, rows) for name, b in sent.tensors.items()}
            )
        if sent.coordinates_per_row is not None:
            sent = replace(sent, coordinates_per_row=sent.coordinates_per_row[rows])
        return replace(
            self,
            sent=sent,
            delivered_mask=None,
            row_seconds=None if seconds is None else seconds[rows.cpu().numpy()],
            row_order=rows if self.row_order is None else self.row_order[rows],
        )

    def expand_rows(self, cohort: Cohort, start: int, stop: int) -> Broadcast:
        """Return what the rows start..stop of the cohort get, always a fresh copy."""
        own = self.sent.expand_rows(cohort, start, stop)
        if self.distort is not None:
            chunk = cohort if stop - start == cohort.num_rows else cohort.slice_rows(start, stop)
            place = torch.arange(start, stop, device=cohort.trial.device)
            self.distort(
                own.tensors, chunk, place if self.row_order is None else self.row_order[place]
            )
        return own


class Downlink(ABC):
    """Carry the server's broadcast to the devices.

    Parameters
    ----------
    settings : the downlink's, of its class `Settings`.
    setup : what every downlink is built from.
    """

    class Settings(settings.Settings):
        """Hold the section `downlink` of a scenario."""

    def __init__(self, settings: Any, setup: DownlinkSetup) -> None:
        self.settings, self.setup = settings, setup

    @abstractmethod
    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Delivery:
        """Return how a broadcast arrives at a cohort of N rows in a round."""


def count_copies(broadcast: Broadcast, cohort: Cohort) -> np.ndarray:
    """Return how often the server sends, [S]."""
    if broadcast.per_device:
        return np.array(cohort.counts, dtype=float)
    return np.ones(cohort.num_trials)
