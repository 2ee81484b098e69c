"""Flat Rayleigh fading, h ~ CN(0, 1): independent over devices; over rounds and coherence blocks
independent, or correlated where devices move."""

from __future__ import annotations

import math
from typing import ClassVar

from scipy import special

from otafl.channels.config import RayleighConfig
from otafl.channels.ris import with_surface
from otafl.channels.scattering import flat_state, rounds_apart, scattering
from otafl.core.contracts import ChannelState, Hyper, LinkBudget
from otafl.core.rng import Streams


class Rayleigh:
    """h: [S, K, A, 1, 1] complex, E|h|^2 = 1 (with a reflecting surface, more).

    The closed forms are those of one antenna; for moving devices, a sum of sinusoids, they hold
    within 0.2 %.
    """

    normal: ClassVar[bool] = True
    unit_mean_amplitude: ClassVar[float] = math.sqrt(math.pi) / 2.0

    def __init__(
        self,
        config: RayleighConfig,
        budget: LinkBudget,
        devices: int,
        streams: Streams,
        hyper: Hyper | None = None,
    ) -> None:
        self.closed_form = config.antennas == 1 and config.ris is None
        self.correlation_rounds = rounds_apart(config)
        self._config, self._gain = config, budget.gain
        direct = scattering(
            config, budget, devices, config.antennas, config.antenna_correlation, streams
        )
        self._fading = with_surface(direct, config, budget, devices, streams)

    def state(self, round: int) -> ChannelState:
        return flat_state(self._fading, self._config, self._gain, round)

    def mean_inverse(self, threshold: float, gain: float, error_variance: float) -> float:
        """E[1/g; g >= threshold] = E1(threshold / beta) / beta of the estimate's exponential gain
        g of mean beta = gain (1 + variance)."""
        beta = gain * (1.0 + error_variance)
        return float(special.exp1(threshold / beta)) / beta
