"""Rayleigh fading, h ~ CN(0, 1), flat in frequency.

Fading is independent over devices. Over rounds and coherence blocks it is independent, or
correlated if devices move.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.channels.base import Channel, FadingSettings
from otafl.channels.fading import (
    DEVICES_PER_DRAW,
    FADING,
    BatchedFading,
    Fading,
    build_block_state,
    correlate_antennas,
)
from otafl.channels.jakes import Jakes, count_correlation_rounds
from otafl.channels.ris import FlatFadingSettings, ReflectedChannel
from otafl.core.contracts import ChannelState
from otafl.core.rng import Purpose

RAYLEIGH_AMPLITUDE = math.sqrt(math.pi) / 2.0
"""E|h| of h ~ CN(0, 1)."""


class FlatFading(Channel):
    """Fading that is flat in frequency, with a path over a reflecting surface if there is one."""

    @abstractmethod
    def build_direct(self) -> Fading:
        """Build the fading [S, K, A, B] of the direct path."""

    def prepare(self) -> None:
        settings: FlatFadingSettings = self.settings
        self.has_closed_form = settings.antennas == 1 and settings.ris is None
        self.correlation_rounds = count_correlation_rounds(settings)
        self._fading, self.gain = self.build_direct(), self.budget.gain
        if settings.ris is not None:
            self.num_sounded_paths = settings.ris.num_sounded_paths
            to_surface = build_fading(self, settings.ris.elements, FADING / "ris")
            self._fading = ReflectedChannel(self, self._fading, to_surface)

    def get_state(self, round: int) -> ChannelState:
        return self._draw_state(round)

    def get_state_of_devices(self, round: int, devices: Tensor) -> ChannelState:
        return self._draw_state(round, devices)

    def _draw_state(self, round: int, among: Tensor | None = None) -> ChannelState:
        """Draw the state of a round, for the devices `among` [n], or for all if None."""

        def draw(blocks: int) -> Tensor:
            return self._fading.draw(round, blocks, among)[..., None]

        return build_block_state(draw(1), self.gain, self.settings.block_symbols, draw)


class Rayleigh(FlatFading):
    """Rayleigh fading of S trials over K devices and A antennas.

    A state has h [S, K, A, B, 1], complex with E|h|^2 = 1, of the first of B coherence blocks and,
    when they are needed, of the others; and the gains of the link budget [S, K]. A reflecting
    surface increases E|h|^2. For moving devices, whose h is a sum of sinusoids (`Jakes`), the
    closed forms are accurate to 0.2 %. Example: `studies/physical_layer/nmse_snr.yaml`.
    """

    is_gaussian: ClassVar[bool] = True
    unit_mean_amplitude: ClassVar[float] = RAYLEIGH_AMPLITUDE

    class Settings(FlatFadingSettings):
        name: Literal["rayleigh"] = "rayleigh"

    settings: Settings

    def build_direct(self) -> Fading:
        return build_fading(self)

    def compute_mean_inverse(self, threshold: float, gain: float, error_variance: float) -> float:
        return compute_mean_inverse(threshold, gain, error_variance)


class BlockFading(BatchedFading):
    """Fading h ~ CN(0, 1) that is new in each coherence block, correlated over antennas.

    `BatchedFading` asks for the numbers of a batch of devices, a trial and some rounds, and keeps
    them for these rounds.

    Parameters
    ----------
    channel : Channel
        Channel with the settings of a fading channel.
    antennas : int
        Number of antennas, A.
    neighbours : float
        Correlation of neighbouring antennas.
    purpose : Purpose
        Name of the random streams.
    """

    def __init__(
        self, channel: Channel, antennas: int, neighbours: float, purpose: Purpose
    ) -> None:
        super().__init__(channel, antennas, purpose)
        self._neighbours = neighbours

    def draw_batch(self, seed: int, rounds: int, blocks: int) -> Tensor:
        """Draw (x + j y) / sqrt(2) with x, y ~ N(0, 1), then correlate the antennas.

        They are the numbers of Sionna's RayleighBlockFading with this seed, on any device.
        """
        generator = torch.Generator("cpu").manual_seed(seed)
        size = (rounds, blocks, self.antennas, DEVICES_PER_DRAW)
        real, imaginary = (
            torch.normal(0.0, 0.5**0.5, size, generator=generator, dtype=self.streams.dtype)
            for _ in range(2)
        )
        return correlate_antennas(torch.complex(real, imaginary), self._neighbours, 2)


def build_fading(
    channel: Channel, antennas: int | None = None, purpose: Purpose = FADING
) -> Fading:
    """Build Rayleigh fading of unit power.

    Parameters
    ----------
    channel : Channel
        Channel with the settings of a fading channel.
    antennas : int, optional
        Number of independent antennas; by default the server's, correlated by the settings.
    purpose : Purpose
        Name of the random streams.

    Returns
    -------
    Fading
        Block fading, or time-correlated fading if devices move.
    """
    settings: FadingSettings = channel.settings
    neighbours = settings.antenna_correlation if antennas is None else 0.0
    kind = BlockFading if settings.speed_kmh is None else Jakes
    return kind(channel, antennas or settings.antennas, neighbours, purpose)


def compute_mean_inverse(threshold: float, gain: float, error_variance: float) -> float:
    """Compute E[1/g; g >= threshold] of an estimated gain g, as `Channel.compute_mean_inverse`.

    g is exponential with mean beta = gain (1 + error_variance), so it is E_1(threshold / beta) /
    beta with the exponential integral E_1.
    """
    from scipy import special  # its import takes 0.1 s, and few policies need it

    beta = gain * (1.0 + error_variance)
    return float(special.exp1(threshold / beta)) / beta
