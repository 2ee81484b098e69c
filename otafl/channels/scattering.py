"""Scattered fading of flat channels: anew in each block, drawn by Sionna's RayleighBlockFading, or
correlated over time where devices move (`jakes.py`)."""

from __future__ import annotations

import functools
from typing import Protocol

import torch
from torch import Tensor

from otafl.channels.config import FadingConfig
from otafl.channels.correlation import correlated
from otafl.channels.fading import ROUNDS_PER_BLOCK, RoundBlocks
from otafl.channels.jakes import Jakes, correlation_rounds, doppler_hz
from otafl.channels.sionna_rng import keep_global_state, sionna_stream
from otafl.core.contracts import ChannelState, LinkBudget
from otafl.core.rng import Streams

DEVICES_PER_DRAW = 32
LEAST_ROUNDS = 8


class Fading(Protocol):
    """h of a round's first so many coherence blocks, a function of round and block alone."""

    def draw(self, round: int, blocks: int) -> Tensor:
        """[S, K, A, blocks] complex."""


class BlockFading:
    """h ~ CN(0, 1), independent over trials, devices, rounds and blocks, correlated over antennas.

    Devices are drawn 32 at a time, each batch of them from a stream of its own, so the first
    devices' fading does not depend on how many there are; and 64 rounds at a time, or fewer of many
    antennas. Blocks 2^c to 2^(c+1) - 1 are drawn together once a payload reaches them.
    """

    def __init__(
        self, devices: int, antennas: int, neighbours: float, streams: Streams, purpose: str
    ) -> None:
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
        self._devices, self._antennas, self._neighbours = devices, antennas, neighbours
        self._streams, self._purpose = streams, purpose
        self._rounds = max(LEAST_ROUNDS, ROUNDS_PER_BLOCK // antennas)
        self._first = RoundBlocks(
            functools.partial(self._drawn, purpose=purpose, blocks=1), self._rounds
        )
        self._later: list[RoundBlocks] = []

    def draw(self, round: int, blocks: int) -> Tensor:
        """[S, K, A, blocks]."""
        doublings = (blocks - 1).bit_length()
        for c in range(len(self._later), doublings):
            draw = functools.partial(self._drawn, purpose=f"{self._purpose}/2^{c}", blocks=1 << c)
            self._later.append(RoundBlocks(draw, max(1, self._rounds >> c)))
        parts = [self._first[round], *(later[round] for later in self._later[:doublings])]
        return torch.cat(parts, 3)[..., :blocks] if doublings else parts[0]

    def _drawn(self, first: int, rounds: int, purpose: str, blocks: int) -> Tensor:
        """[rounds, S, K, A, blocks]."""
        batches = []
        for batch in range(-(-self._devices // DEVICES_PER_DRAW)):
            by_seed: dict[int, Tensor] = {}
            seeds = self._streams.seeds(f"{purpose}/{batch}", first // rounds)
            for seed in seeds:
                if seed not in by_seed:
                    with sionna_stream(seed, self._streams.device):
                        taps, _ = self._sionna(batch_size=rounds * blocks, num_time_steps=1)
                    taps = taps.reshape(rounds, blocks, self._antennas, DEVICES_PER_DRAW)
                    by_seed[seed] = taps.permute(0, 3, 2, 1)
            batches.append(torch.stack([by_seed[seed] for seed in seeds], 1))
        return correlated(torch.cat(batches, 2)[:, :, : self._devices], self._neighbours, 3)


def scattering(
    config: FadingConfig,
    budget: LinkBudget,
    devices: int,
    antennas: int,
    neighbours: float,
    streams: Streams,
    purpose: str = "fading",
) -> Fading:
    """Unit-power Rayleigh fading to so many antennas, as the channel's section says."""
    if config.speed_kmh is None:
        return BlockFading(devices, antennas, neighbours, streams, purpose)
    return Jakes(
        doppler_hz(config.speed_kmh, config.carrier_hz),
        config.round_interval_s,
        block_seconds(config, budget),
        devices,
        antennas,
        neighbours,
        streams,
        purpose,
    )


def block_seconds(config: FadingConfig, budget: LinkBudget) -> Tensor | None:
    """[S] seconds of a coherence block: a symbol a second and hertz."""
    return None if config.block_symbols is None else config.block_symbols / budget.bandwidth_hz


def rounds_apart(config: FadingConfig) -> int:
    """The channel's `correlation_rounds`."""
    if config.speed_kmh is None:
        return 1
    return correlation_rounds(
        doppler_hz(config.speed_kmh, config.carrier_hz), config.round_interval_s
    )


def flat_state(fading: Fading, config: FadingConfig, gain: Tensor, round: int) -> ChannelState:
    """The state of a round of a flat channel; later blocks are drawn once, when asked for."""
    later = None
    if config.block_symbols is not None:
        later = functools.cache(lambda blocks: fading.draw(round, blocks)[..., None])
    h = fading.draw(round, 1)[..., None]
    return ChannelState(h=h, gain=gain, block_symbols=config.block_symbols, later=later)
