"""Proportional fairness: the devices whose rate is largest relative to what they have had.
Viswanath, Tse, Laroia 2002, "Opportunistic Beamforming Using Dumb Antennas".

R_k(t) = log2(1 + P_k |h_k|^2) is a device's rate and T_k(t) its average throughput over t_c rounds,
T_k(t+1) = (1 - 1/t_c) T_k(t) + (1/t_c) R_k(t) if it is served, else (1 - 1/t_c) T_k(t): those with
the largest R_k / T_k are served. T_k starts at the device's fair share of its rate at mean gain.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort
from otafl.selection.choosing import SelectionSetup, host, lowest
from otafl.selection.config import ProportionalFairSelectionConfig

LEAST = 1e-200
"""Throughput of a device that has not been served for very long."""


class ProportionalFair:
    """Keeps each device's average throughput [S, K], in bits a symbol."""

    narrows: ClassVar[bool] = False

    def __init__(self, config: ProportionalFairSelectionConfig, setup: SelectionSetup) -> None:
        self._setup = setup
        self._budget = host(setup.budget.budget)
        self._share = 1.0 / host(setup.hyper["window"])[:, None]
        self._throughput: np.ndarray | None = None

    def choose(
        self, free: np.ndarray, wanted: np.ndarray | int, round: int, state: ChannelState
    ) -> np.ndarray:
        if self._throughput is None:
            at_mean = np.log2(1.0 + self._budget * host(state.gain))
            share = np.minimum(1.0, np.broadcast_to(wanted, len(free)) / free.shape[1])
            self._throughput = at_mean * share[:, None]
        rate = np.log2(1.0 + self._budget * host(self._setup.gains(state, round)))
        chosen, _ = lowest(-rate / self._throughput.clip(LEAST), free, wanted)
        self._throughput += self._share * (rate * chosen - self._throughput)
        return chosen

    def side_symbols(self, available: np.ndarray | None, cohort: Cohort) -> Tensor | None:
        return self._setup.unheard_pilots(available, cohort)
