"""What a selection is, and what selections share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort, Csi, Hyper, LinkBudget, Payload
from otafl.core.rng import Streams


@dataclass(frozen=True)
class SelectionSetup:
    """What every selection is built from. hyper: its own stackable fields."""

    csi: Csi
    budget: LinkBudget
    streams: Streams
    hyper: Hyper

    def gains(self, state: ChannelState, round: int) -> Tensor:
        """[S, K]: estimated |h|^2 of a payload's first coherence block, mean over antennas and
        sub-carrier groups, large-scale gain included. All devices are sounded for it."""
        h_hat = self.csi.estimate(state.h, state.gain, round)
        return state.gain * h_hat.abs().square().mean((2, 3, 4))

    def snr(self, state: ChannelState, round: int) -> Tensor:
        """[S, K]: estimated signal-to-noise ratio at full power."""
        return self.budget.budget * self.gains(state, round)

    def unheard_pilots(self, available: np.ndarray | None, cohort: Cohort) -> Tensor | None:
        """[S] pilots of the available devices (None: all) that are not in the cohort, whose own
        count as part of its transmission."""
        pilots = self.csi.pilot_symbols
        if not pilots:
            return None
        sounded = torch.full_like(cohort.rows_of, cohort.population)
        if available is not None:
            sounded = torch.from_numpy(available.sum(1)).to(sounded)
        return (sounded - cohort.rows_of) * float(pilots)


class Selection(Protocol):
    """Chooses who takes part; made as `implementation(config, setup)`. Asked once a round, in order
    of rounds; what it remembers of earlier ones is its own. narrows: it may choose fewer than it
    could; else it is not asked where all devices are wanted."""

    narrows: bool

    def choose(
        self, free: np.ndarray, wanted: np.ndarray | int, round: int, state: ChannelState
    ) -> np.ndarray:
        """[S, K] bool: `wanted` (one number, or [S]) of the free devices [S, K] bool, or
        all where fewer are free. state: the channel of this round."""

    def side_symbols(self, available: np.ndarray | None, cohort: Cohort) -> Tensor | None:
        """[S] side information, in channel uses, of choosing this cohort of the available devices
        [S, K] bool (None: all); None where nothing has to be told."""


@runtime_checkable
class SelectionByUpdate(Protocol):
    """A selection that decides after local work which of the cohort send."""

    def senders(self, payload: Payload, cohort: Cohort, wanted: int) -> Tensor:
        """[N] bool: `wanted` rows of each trial, or all that there are."""


def lowest(
    key: np.ndarray, free: np.ndarray, wanted: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """The `wanted` free devices (of each trial, [S]) with the lowest keys [S, K], ties by number:
    [S, K] bool; and the first devices in that order [S, most], of which some are not chosen where
    fewer are free or wanted."""
    wanted = np.broadcast_to(wanted, len(free))
    order = np.where(free, key, np.inf).argsort(1, kind="stable")[:, : wanted.max(initial=0)]
    chosen = np.zeros_like(free)
    np.put_along_axis(chosen, order, np.arange(order.shape[1]) < wanted[:, None], 1)
    return chosen & free, order


def some_of(cohort: Cohort, wanted: int, round: int, streams: Streams) -> Tensor:
    """[N] bool: so many of each trial's rows, every set equally likely; all where there are no
    more."""
    key = streams.device_uniform("senders", round, cohort.trial, cohort.device, (1,)).squeeze(1)
    order = key.argsort()
    order = order[cohort.trial[order].argsort(stable=True)]  # by trial, then by key
    first = cohort.rows_of.long().cumsum(0) - cohort.rows_of.long()
    place = torch.arange(cohort.size, device=key.device) - first[cohort.trial]
    return torch.zeros_like(cohort.sends).scatter_(0, order, place < wanted)


def random_key(streams: Streams, round: int, devices: int) -> np.ndarray:
    """[S, K] uniform in (0, 1)."""
    return np.asarray(streams.uniform("selection", round, (devices,)).cpu())


def host(values: Tensor) -> np.ndarray:
    """A tensor as a NumPy array."""
    return np.asarray(values.detach().to("cpu", torch.float64))
