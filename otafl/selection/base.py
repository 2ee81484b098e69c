"""Define the contract of a selection: which of the available devices take part in a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from otafl.core import settings
from otafl.core.contracts import ChannelState, Cohort, Hyper, LinkBudget, Payload
from otafl.core.renamed import keep_old_names
from otafl.core.rng import Streams, declare_purpose
from otafl.core.stateful import Stateful
from otafl.csi.base import Csi

KEYS = declare_purpose("selection", __name__)

Devices = np.ndarray
"""[S, K] bool, which of them."""

NumWanted = np.ndarray | int
"""How many devices of each trial, one number or [S]; all where fewer are free."""


@dataclass(frozen=True)
class SelectionSetup:
    """Hold what every selection is built from. hyper: its own stackable fields."""

    csi: Csi
    budget: LinkBudget
    streams: Streams
    hyper: Hyper

    def estimate_gains(self, state: ChannelState, round: int) -> Tensor:
        """Return the estimated |h|^2 [S, K] of a payload's first coherence block, mean over
        antennas and sub-carrier groups, large-scale gain included. All devices are sounded for
        it."""
        h_hat = self.csi.estimate(state.h, state.gain, round)
        return state.gain * h_hat.abs().square().mean((2, 3, 4))

    def estimate_snr(self, state: ChannelState, round: int) -> Tensor:
        """Return the estimated signal-to-noise ratio [S, K] at full power."""
        return self.budget.budget * self.estimate_gains(state, round)


class Selection(Stateful, ABC):
    """Choose who takes part.

    It is asked once a round, in order of rounds; `state_attrs` names what it remembers of earlier
    ones.

    Parameters
    ----------
    settings : the selection's, of its class `Settings`.
    setup : what every selection is built from.
    """

    is_narrowing: ClassVar[bool] = False
    """It may choose fewer than it could; else it is not asked where all devices are wanted."""

    is_channel_blind: ClassVar[bool] = False
    """It does not look at the channels, so that only those of the chosen devices need be known."""

    uses_sounding: ClassVar[bool] = False
    """It goes by the channels, for which all available devices send pilots."""

    class Settings(settings.Settings):
        """Describe the section `devices.selection` of a scenario."""

        @property
        def sampling_probability(self) -> float | None:
            """Return the probability with which each device takes part in a round, whoever else
            does; None where participants are not drawn so."""
            return None

    def __init__(self, settings: Any, setup: SelectionSetup) -> None:
        self.settings, self.setup = settings, setup

    @abstractmethod
    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        """Return who takes part.

        Parameters
        ----------
        available : the devices to choose from.
        wanted : how many.
        state : the channel of this round; of a selection that is `is_channel_blind`, of no device
            in particular.
        """

    def get_keys(self, round: int, devices: int) -> np.ndarray | None:
        """Return keys [S, K] in whose order free devices are chosen, the lowest first, of a
        selection that goes by nothing else; None of any other."""
        return None

    def select_transmitters(self, payload: Payload, cohort: Cohort, wanted: int) -> Tensor | None:
        """Return which rows send what they have after local work, [N] bool: `wanted` of each trial,
        or all that there are. None: all do, as the choice was made before."""
        return None

    def count_overhead_symbols(self, available: Devices | None, cohort: Cohort) -> Tensor | None:
        """Return the side information [S], in channel uses, of choosing this cohort of the
        available devices [S, K] bool (None: all); None where nothing has to be told.

        By default these are the pilots of those who are not in the cohort, where the selection
        sounds the channels; the cohort's own count as part of its transmission.
        """
        pilots = self.setup.csi.num_pilot_symbols if self.uses_sounding else 0
        if not pilots:
            return None
        num_sounded_paths = torch.full_like(cohort.rows_per_trial, cohort.num_devices)
        if available is not None:
            num_sounded_paths = torch.from_numpy(available.sum(1)).to(num_sounded_paths)
        return (num_sounded_paths - cohort.rows_per_trial) * float(pilots)


def select_lowest(key: np.ndarray, free: Devices, wanted: NumWanted) -> tuple[Devices, np.ndarray]:
    """Choose the `wanted` free devices (of each trial, [S]) with the lowest keys [S, K], ties by
    number.

    Returns
    -------
    Who is chosen, [S, K] bool; and the first devices in that order [S, most], of which some are not
    chosen where fewer are free or wanted.
    """
    wanted = np.broadcast_to(wanted, len(free))
    order = find_lowest(np.where(free, key, np.inf), int(wanted.max(initial=0)))
    chosen = np.zeros_like(free)
    np.put_along_axis(chosen, order, np.arange(order.shape[1]) < wanted[:, None], 1)
    return chosen & free, order


def find_lowest(key: np.ndarray, count: int) -> np.ndarray:
    """Return the places of the lowest keys of each row [S, K] in order, ties by place, [S, count];
    K of them where there are no more."""
    devices = key.shape[1]
    if not 0 < count < devices:
        return key.argsort(1, kind="stable")[:, :count]
    last = np.partition(key, count - 1, 1)[:, count - 1]
    order = np.empty((len(key), count), np.int64)
    for row, own, most in zip(order, key, last, strict=True):
        candidates = np.flatnonzero(own <= most)  # sorting them all would take much longer
        row[:] = candidates[own[candidates].argsort(kind="stable")[:count]]
    return order


def yield_in_order(key: np.ndarray) -> Iterator[int]:
    """Give the places of keys [K] from the lowest on, ties by place; few are sorted at first."""
    given, count = 0, 256
    while given < len(key):
        order = find_lowest(key[None], count)[0]
        yield from order[given:].tolist()
        given, count = len(order), 4 * count


def draw_random_key(streams: Streams, round: int, devices: int) -> np.ndarray:
    """Draw keys [S, K] uniform in (0, 1)."""
    return np.asarray(streams.draw_uniform(KEYS, round, (devices,)).cpu())


def to_host(values: Tensor) -> np.ndarray:
    """Return a tensor as a NumPy array of doubles."""
    return np.asarray(values.detach().to("cpu", torch.float64))


keep_old_names(__name__)
