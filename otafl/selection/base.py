"""The contract of a selection: which of the available devices take part in a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from otafl.core import settings
from otafl.core.contracts import ChannelState, Cohort, Hyper, LinkBudget, Payload
from otafl.core.rng import Streams
from otafl.csi.base import Csi


@dataclass(frozen=True)
class SelectionSetup:
    """Hold what every selection is built from. hyper: its own stackable fields."""

    csi: Csi
    budget: LinkBudget
    streams: Streams
    hyper: Hyper

    def gains(self, state: ChannelState, round: int) -> Tensor:
        """Return the estimated |h|^2 [S, K] of a payload's first coherence block, mean over
        antennas and sub-carrier groups, large-scale gain included. All devices are sounded for
        it."""
        h_hat = self.csi.estimate(state.h, state.gain, round)
        return state.gain * h_hat.abs().square().mean((2, 3, 4))

    def snr(self, state: ChannelState, round: int) -> Tensor:
        """Return the estimated signal-to-noise ratio [S, K] at full power."""
        return self.budget.budget * self.gains(state, round)


class Selection(ABC):
    """Choose who takes part.

    It is asked once a round, in order of rounds; what it remembers of earlier ones is its own.

    Parameters
    ----------
    settings : the selection's, of its class `Settings`.
    setup : what every selection is built from.
    """

    narrows: ClassVar[bool] = False
    """It may choose fewer than it could; else it is not asked where all devices are wanted."""

    sounds: ClassVar[bool] = False
    """It goes by the channels, for which all available devices send pilots."""

    class Settings(settings.Settings):
        """The section `devices.selection` of a scenario."""

    def __init__(self, settings: Any, setup: SelectionSetup) -> None:
        self.settings, self.setup = settings, setup

    @abstractmethod
    def choose(
        self, free: np.ndarray, wanted: np.ndarray | int, round: int, state: ChannelState
    ) -> np.ndarray:
        """Return who takes part, [S, K] bool.

        Parameters
        ----------
        free : [S, K] bool, the devices to choose from.
        wanted : how many, one number or [S]; all where fewer are free.
        state : the channel of this round.
        """

    def senders(self, payload: Payload, cohort: Cohort, wanted: int) -> Tensor | None:
        """Return which rows send what they have after local work, [N] bool: `wanted` of each trial,
        or all that there are. None: all do, as the choice was made before."""
        return None

    def side_symbols(self, available: np.ndarray | None, cohort: Cohort) -> Tensor | None:
        """Return the side information [S], in channel uses, of choosing this cohort of the
        available devices [S, K] bool (None: all); None where nothing has to be told.

        By default these are the pilots of those who are not in the cohort, where the selection
        sounds the channels; the cohort's own count as part of its transmission.
        """
        pilots = self.setup.csi.pilot_symbols if self.sounds else 0
        if not pilots:
            return None
        sounded = torch.full_like(cohort.rows_of, cohort.population)
        if available is not None:
            sounded = torch.from_numpy(available.sum(1)).to(sounded)
        return (sounded - cohort.rows_of) * float(pilots)
