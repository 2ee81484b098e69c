"""Scatter the signals of flat channels: Rayleigh fading, and the states that it makes.

Fading is drawn anew in each block by Sionna's RayleighBlockFading, or is correlated over time where
devices move (`jakes`).
"""

from __future__ import annotations

import functools

import torch
from pydantic import Field
from torch import Tensor

from otafl.channels.base import Channel, FadingSettings
from otafl.channels.fading import (
    FADING,
    ROUNDS_PER_BLOCK,
    Fading,
    RoundBlocks,
    block_state,
    correlated,
)
from otafl.channels.jakes import Jakes
from otafl.channels.ris import Reflected, RisSettings
from otafl.channels.sionna_rng import keep_global_state, sionna_stream
from otafl.core.contracts import ChannelState
from otafl.core.rng import Purpose

DEVICES_PER_DRAW = 32
LEAST_ROUNDS = 8


class FlatFadingSettings(FadingSettings):
    """The section of a flat channel that fades may hold these keys."""

    ris: RisSettings | None = Field(None, description="a reflecting surface")


class BlockFading:
    """Draw h ~ CN(0, 1), independent over trials, devices, rounds and blocks, correlated over
    antennas.

    Devices are drawn 32 at a time, each batch of them from a stream of its own, so the first
    devices' fading does not depend on how many there are; and 64 rounds at a time, or fewer of many
    antennas. Blocks 2^c to 2^(c+1) - 1 are drawn together once a payload reaches them.
    """

    def __init__(
        self, channel: Channel, antennas: int, neighbours: float, purpose: Purpose
    ) -> None:
        streams = channel.streams
        with keep_global_state():
            from sionna.phy.channel import RayleighBlockFading

        self._sionna = RayleighBlockFading(
            num_rx=1,
            num_rx_ant=antennas,
            num_tx=DEVICES_PER_DRAW,
            num_tx_ant=1,
            precision="double" if streams.dtype == torch.float64 else "single",
            device=str(streams.device),
        )
        self._devices, self._antennas, self._neighbours = channel.devices, antennas, neighbours
        self._streams, self._purpose = streams, purpose
        self._rounds = max(LEAST_ROUNDS, ROUNDS_PER_BLOCK // antennas)
        self._first = RoundBlocks(
            functools.partial(self._drawn, purpose=purpose, blocks=1), self._rounds
        )
        self._later: list[RoundBlocks] = []

    def draw(self, round: int, blocks: int) -> Tensor:
        """Draw [S, K, A, blocks]."""
        doublings = (blocks - 1).bit_length()
        for c in range(len(self._later), doublings):
            draw = functools.partial(self._drawn, purpose=self._purpose / f"2^{c}", blocks=1 << c)
            self._later.append(RoundBlocks(draw, max(1, self._rounds >> c)))
        parts = [self._first[round], *(later[round] for later in self._later[:doublings])]
        return torch.cat(parts, 3)[..., :blocks] if doublings else parts[0]

    def _drawn(self, first: int, rounds: int, purpose: Purpose, blocks: int) -> Tensor:
        """Draw [rounds, S, K, A, blocks]."""
        batches = []
        for batch in range(-(-self._devices // DEVICES_PER_DRAW)):
            by_seed: dict[int, Tensor] = {}
            seeds = self._streams.seeds(purpose / batch, first // rounds)
            for seed in seeds:
                if seed not in by_seed:
                    with sionna_stream(seed, self._streams.device):
                        taps, _ = self._sionna(batch_size=rounds * blocks, num_time_steps=1)
                    taps = taps.reshape(rounds, blocks, self._antennas, DEVICES_PER_DRAW)
                    by_seed[seed] = taps.permute(0, 3, 2, 1)
            batches.append(torch.stack([by_seed[seed] for seed in seeds], 1))
        return correlated(torch.cat(batches, 2)[:, :, : self._devices], self._neighbours, 3)


def scattering(channel: Channel, antennas: int | None = None, purpose: Purpose = FADING) -> Fading:
    """Return Rayleigh fading of unit power to the server's antennas, correlated as the section
    says, or to so many independent ones."""
    settings: FadingSettings = channel.settings
    neighbours = settings.antenna_correlation if antennas is None else 0.0
    kind = BlockFading if settings.speed_kmh is None else Jakes
    return kind(channel, antennas or settings.antennas, neighbours, purpose)


class FlatStates:
    """Make the states of a flat channel out of its fading, and of the path over the reflecting
    surface that its section may have.

    direct: fading [S, K, A, B] without the surface.
    """

    def __init__(self, channel: Channel, direct: Fading) -> None:
        settings: FlatFadingSettings = channel.settings
        self._fading, self._block_symbols = direct, settings.block_symbols
        self._gain, ris = channel.budget.gain, settings.ris
        if ris is not None:
            to_surface = scattering(channel, ris.elements, FADING / "ris")
            self._fading = Reflected(channel, direct, to_surface)

    def state(self, round: int) -> ChannelState:
        """Return the state of a round."""

        def draw(blocks: int) -> Tensor:
            return self._fading.draw(round, blocks)[..., None]

        return block_state(draw(1), self._gain, self._block_symbols, draw)
