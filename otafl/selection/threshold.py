"""Channel threshold: devices below it stay out of the round, before they have trained. Under
Rayleigh fading of mean SNR s a device takes part with probability exp(-threshold / s). In a round
in which no device reaches it nothing is learned."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort
from otafl.selection.choosing import SelectionSetup, lowest, random_key
from otafl.selection.config import ThresholdSelectionConfig


class Threshold:
    narrows: ClassVar[bool] = True

    def __init__(self, config: ThresholdSelectionConfig, setup: SelectionSetup) -> None:
        self._setup = setup
        self._least = 10.0 ** (setup.hyper["min_snr_db"][:, None] / 10.0)

    def choose(
        self, free: np.ndarray, wanted: np.ndarray | int, round: int, state: ChannelState
    ) -> np.ndarray:
        snr = self._setup.snr(state, round)
        heard = free & (snr >= self._least).cpu().numpy()
        if np.min(wanted) >= free.shape[1]:
            return heard
        return lowest(random_key(self._setup.streams, round, free.shape[1]), heard, wanted)[0]

    def side_symbols(self, available: np.ndarray | None, cohort: Cohort) -> Tensor | None:
        return self._setup.unheard_pilots(available, cohort)
