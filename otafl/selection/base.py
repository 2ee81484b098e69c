"""Contract of a selection, which chooses the participants of a round from the available devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from otafl.core import settings
from otafl.core.contracts import ChannelState, Cohort, Hyper, LinkBudget, Payload
from otafl.core.rng import Streams, declare_purpose
from otafl.core.stateful import Stateful
from otafl.csi.base import Csi

KEYS = declare_purpose("selection", __name__)

Devices = np.ndarray
"""Mask of devices, bool [S, K]."""

NumWanted = np.ndarray | int
"""Number of devices of each trial, one number or [S]; all devices if fewer are available."""


@dataclass(frozen=True)
class SelectionSetup:
    """Arguments of every selection.

    Parameters
    ----------
    csi : Csi
        Estimates of the channel.
    budget : LinkBudget
        Power budgets.
    streams : Streams
        Source of random numbers.
    hyper : mapping of str to Tensor [S]
        Stackable settings of the selection.
    """

    csi: Csi
    budget: LinkBudget
    streams: Streams
    hyper: Hyper

    def estimate_gains(self, state: ChannelState, round: int) -> Tensor:
        """Estimate the channel power gains of all devices in a round.

        Parameters
        ----------
        state : ChannelState
            Channel of the round.
        round : int
            Index of the round.

        Returns
        -------
        Tensor [S, K]
            Estimated |h|^2 of the first coherence block, averaged over antennas and sub-carrier
            groups, with large-scale gain.
        """
        h_hat = self.csi.estimate(state.h, state.gain, round)
        return state.gain * h_hat.abs().square().mean((2, 3, 4))

    def estimate_snr(self, state: ChannelState, round: int) -> Tensor:
        """Estimate the signal-to-noise ratio [S, K] at full power."""
        return self.budget.budget * self.estimate_gains(state, round)


class Selection(Stateful, ABC):
    """Selection of participants.

    The engine asks it once a round, in the order of rounds. `state_attrs` names its state between
    rounds.

    Parameters
    ----------
    settings : Settings
        Settings of the selection, of its class `Settings`.
    setup : SelectionSetup
        Channel estimates, budgets and random streams.
    """

    is_narrowing: ClassVar[bool] = False
    """Whether it may choose fewer devices than are wanted.

    Otherwise the engine does not ask it if all devices are wanted.
    """

    is_channel_blind: ClassVar[bool] = False
    """Whether it ignores the channels, so that only those of the chosen devices are needed."""

    uses_sounding: ClassVar[bool] = False
    """Whether it uses the channels, for which all available devices send pilots."""

    class Settings(settings.Settings):
        """Settings of the section `devices.selection` of a scenario."""

        @property
        def sampling_probability(self) -> float | None:
            """The probability with which each device takes part independently.

            None for other selections.
            """
            return None

    def __init__(self, settings: Any, setup: SelectionSetup) -> None:
        self.settings, self.setup = settings, setup

    @abstractmethod
    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        """Choose the participants of a round.

        Parameters
        ----------
        available : ndarray, bool [S, K]
            Available devices.
        wanted : int or ndarray [S]
            Number of participants.
        round : int
            Index of the round.
        state : ChannelState
            Channel of the round; without the devices' channels if `is_channel_blind`.

        Returns
        -------
        ndarray, bool [S, K]
            Participants.
        """

    def select_transmitters(self, payload: Payload, cohort: Cohort, wanted: int) -> Tensor | None:
        """Return the rows that send their update after local work.

        Parameters
        ----------
        payload : tuple of Group
            Updates of all rows.
        cohort : Cohort
            Participants, N rows.
        wanted : int
            Number of transmitters of each trial.

        Returns
        -------
        Tensor, bool [N], or None
            Transmitters; None for all rows, if the choice was made before.
        """
        return None

    def count_overhead_symbols(self, available: Devices | None, cohort: Cohort) -> Tensor | None:
        """Count the side information of a choice.

        By default these are the pilots of sounded devices outside the cohort. The pilots of the
        cohort count as part of its transmission.

        Parameters
        ----------
        available : ndarray, bool [S, K], optional
            Available devices; all if None.
        cohort : Cohort
            Chosen devices.

        Returns
        -------
        Tensor [S], or None
            Channel uses; None without side information.
        """
        pilots = self.setup.csi.num_pilot_symbols if self.uses_sounding else 0
        if not pilots:
            return None
        num_sounded_paths = torch.full_like(cohort.rows_per_trial, cohort.num_devices)
        if available is not None:
            num_sounded_paths = torch.from_numpy(available.sum(1)).to(num_sounded_paths)
        return (num_sounded_paths - cohort.rows_per_trial) * float(pilots)


def select_lowest(key: np.ndarray, free: Devices, wanted: NumWanted) -> tuple[Devices, np.ndarray]:
    """Choose the available devices with the lowest keys, ties by number.

    Parameters
    ----------
    key : ndarray [S, K]
        Keys.
    free : ndarray, bool [S, K]
        Available devices.
    wanted : int or ndarray [S]
        Number of devices.

    Returns
    -------
    ndarray, bool [S, K]
        Chosen devices.
    ndarray, int64 [S, most]
        First devices in the order of keys, some of which are not chosen if fewer are available or
        wanted.
    """
    wanted = np.full(len(free), wanted) if isinstance(wanted, int) else np.asarray(wanted)
    keys = key if free.all() else np.where(free, key, np.inf)
    order = find_lowest(keys, int(wanted.max(initial=0)))
    chosen = np.zeros_like(free)
    rows = np.arange(len(free))[:, None]
    chosen[rows, order] = np.arange(order.shape[1]) < wanted[..., None]
    return chosen & free, order


def find_lowest(key: np.ndarray, count: int) -> np.ndarray:
    """Find the positions of the lowest keys of each row in order, ties by position.

    Parameters
    ----------
    key : ndarray [S, K]
        Keys.
    count : int
        Number of positions.

    Returns
    -------
    ndarray, int64 [S, count]
        Positions; K of them if count is larger.
    """
    devices = key.shape[1]
    if not 0 < count < devices:
        return key.argsort(1, kind="stable")[:, :count]
    last = np.partition(key, count - 1, 1)[:, count - 1]
    order = np.empty((len(key), count), np.int64)
    for row, own, most in zip(order, key, last, strict=True):
        candidates = np.flatnonzero(own <= most)  # sorting all keys takes much longer
        row[:] = candidates[own[candidates].argsort(kind="stable")[:count]]
    return order


def draw_random_key(streams: Streams, round: int, devices: int) -> np.ndarray:
    """Draw keys [S, K] uniform in (0, 1)."""
    return np.asarray(streams.draw_uniform(KEYS, round, (devices,)).cpu())


def to_host(values: Tensor) -> np.ndarray:
    """Return a tensor as a NumPy array in double precision."""
    return np.asarray(values.detach().to("cpu", torch.float64))
