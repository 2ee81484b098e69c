"""The contract of a downlink: how the server's broadcast reaches the devices, how long that takes,
and what they hear of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from otafl.core import settings
from otafl.core.contracts import Blocks, Broadcast, Cohort, Hyper, LinkBudget, taken
from otafl.core.rng import Streams, family

DOWNLINK = family("downlink", __name__)
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


class Distortion(ABC):
    """Change a broadcast's numbers on their way to the rows of a cohort."""

    @abstractmethod
    def on(self, blocks: Blocks, cohort: Cohort, start: int, stop: int) -> None:
        """Change blocks [n, *shape] of the rows start..stop, in place; cohort: [n], these rows."""

    def taken(self, rows: Tensor) -> Distortion:
        """Return what becomes of the named rows [n] int64 alone."""
        return self


@dataclass(frozen=True)
class Noise(Distortion):
    """Let the rows of a cohort hear shrink (x + spread z) in place of x; spread, shrink: [N]."""

    spread: Tensor
    shrink: Tensor | None
    streams: Streams
    round: int

    def on(self, blocks: Blocks, cohort: Cohort, start: int, stop: int) -> None:
        for name, block in blocks.items():
            if not block.is_floating_point():
                continue
            row = (-1, *[1] * (block.dim() - 1))
            z = self.streams.device_normal(
                DOWNLINK / name, self.round, cohort.trial, cohort.device, block.shape[1:]
            )
            block.addcmul_(self.spread[start:stop].view(row), z)
            if self.shrink is not None:
                block.mul_(self.shrink[start:stop].view(row))

    def taken(self, rows: Tensor) -> Noise:
        shrink = None if self.shrink is None else self.shrink[rows]
        return replace(self, spread=self.spread[rows], shrink=shrink)


@dataclass(frozen=True)
class Arrival:
    """Hold a broadcast on its way to a cohort.

    sent: what the server sent. seconds: [S] until it is over. bits: [S], all copies together.
    distortion: None where it arrives without error. heard: [N] bool, rows that got it; None for
    all. row_seconds: [N] from the start until a row has it, or is given up; None where all have it
    when it is over.
    """

    sent: Broadcast
    seconds: np.ndarray
    bits: np.ndarray
    distortion: Distortion | None = None
    heard: Tensor | None = None
    row_seconds: np.ndarray | None = None

    @property
    def reals(self) -> int:
        """Return the real numbers in one copy."""
        return self.sent.reals

    def taken(self, keep: Tensor) -> Arrival:
        """Return the arrival at the rows [N] bool alone, as if all of them had it; seconds and bits
        stay what they are."""
        rows, sent, seconds = keep.nonzero().squeeze(1), self.sent, self.row_seconds
        if sent.per_device:
            sent = replace(sent, blocks={name: taken(b, rows) for name, b in sent.blocks.items()})
        if sent.reals_of is not None:
            sent = replace(sent, reals_of=sent.reals_of[rows])
        return replace(
            self,
            sent=sent,
            distortion=None if self.distortion is None else self.distortion.taken(rows),
            heard=None,
            row_seconds=None if seconds is None else seconds[rows.cpu().numpy()],
        )

    def rows(self, cohort: Cohort, start: int, stop: int) -> Broadcast:
        """Return what the rows start..stop of the cohort get, always a fresh copy."""
        own = self.sent.rows(cohort, start, stop)
        if self.distortion is not None:
            chunk = cohort if stop - start == cohort.size else cohort.rows(start, stop)
            self.distortion.on(own.blocks, chunk, start, stop)
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
    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Arrival:
        """Return how a broadcast arrives at a cohort of N rows in a round."""


def copies(broadcast: Broadcast, cohort: Cohort) -> np.ndarray:
    """Return how often the server sends, [S]."""
    if broadcast.per_device:
        return np.array(cohort.counts, dtype=float)
    return np.ones(cohort.trials)
