"""Rayleigh fading of flat channels, and the states of their rounds.

Fading is drawn in each block, with the numbers of Sionna's RayleighBlockFading, or is correlated
over time if devices move (`jakes`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from otafl.channels.base import Channel, FadingSettings
from otafl.channels.fading import (
    FADING,
    ROUNDS_PER_BLOCK,
    Fading,
    RoundBlocks,
    build_block_state,
    correlate_antennas,
)
from otafl.channels.jakes import Jakes
from otafl.channels.ris import ReflectedChannel, RisSettings
from otafl.core.contracts import ChannelState
from otafl.core.rng import Purpose

DEVICES_PER_DRAW = 32
"""Devices that are drawn at a time, from one stream."""
MIN_ROUNDS = 8

FEW = 0.5
"""Fraction of the batches of devices up to which only the needed batches are drawn."""

BATCHES_KEPT = 256
"""Largest number of batches whose draws are kept for later rounds, if not all are drawn."""

MAX_CACHED = 1 << 23
"""Largest number of channel gains that are kept for later rounds."""


class FlatFadingSettings(FadingSettings):
    """Common keys of the sections of flat fading channels."""

    ris: RisSettings | None = None
    """reflecting surface; none by default"""

    @property
    def num_sounded_paths(self) -> int:
        """Paths of a device that are sounded to set the surface."""
        return 0 if self.ris is None else self.ris.num_sounded_paths


class BlockFading:
    """Block fading h ~ CN(0, 1), correlated over antennas.

    It is independent over trials, devices, rounds and blocks. Devices are drawn 32 at a time, each
    batch from its own stream, so that the fading of the first devices does not depend on their
    number. If there are many devices, only the needed batches are drawn. 64 rounds are drawn at a
    time, or fewer with many antennas. Blocks 2^c to 2^(c+1) - 1 are drawn together once a payload
    needs them.

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
        self._devices, self._antennas, self._neighbours = channel.devices, antennas, neighbours
        self._streams, self._purpose = channel.streams, purpose
        self._rounds = max(MIN_ROUNDS, ROUNDS_PER_BLOCK // antennas)
        self._num_batches = -(-self._devices // DEVICES_PER_DRAW)
        self._all = self._get_cache(range(self._num_batches))
        self._batches: dict[int, _Cache] = {}

    def draw(self, round: int, blocks: int, among: Tensor | None = None) -> Tensor:
        """Return h [S, K, A, blocks]; 1 for a device whose batch is not needed."""
        if among is None or (self._num_batches == 1 and len(among)):
            return self._all.draw(round, blocks)[:, : self._devices]
        wanted = (among // DEVICES_PER_DRAW).unique().tolist()
        if len(wanted) > FEW * self._num_batches:
            return self._all.draw(round, blocks)[:, : self._devices]
        streams = self._streams
        size = (streams.num_trials, self._devices, self._antennas, blocks)
        h = torch.ones(size, dtype=streams.dtype.to_complex(), device=streams.device)
        for batch in wanted:
            here = h[:, batch * DEVICES_PER_DRAW : (batch + 1) * DEVICES_PER_DRAW]
            here.copy_(self._get_batch(batch).draw(round, blocks)[:, : here.shape[1]])
        return h

    def _get_batch(self, batch: int) -> _Cache:
        """Return a batch's draws, and drop the oldest if there are many."""
        if batch not in self._batches:
            if len(self._batches) == BATCHES_KEPT:
                del self._batches[next(iter(self._batches))]
            self._batches[batch] = self._get_cache(range(batch, batch + 1))
        return self._batches[batch]

    def _get_cache(self, batches: range) -> _Cache:
        """Make the cache of some batches."""
        numbers = self._streams.num_trials * len(batches) * DEVICES_PER_DRAW * self._antennas
        draw = functools.partial(self._draw_h, batches=batches)
        return _Cache(draw, self._purpose, self._rounds, numbers)

    def _draw_h(
        self, first: int, rounds: int, kept: slice, purpose: Purpose, blocks: int, batches: range
    ) -> Tensor:
        """Draw [kept, S, k, A, blocks] of the k devices of some batches.

        `kept` selects rounds from `first` on.
        """
        drawn = []
        for batch in batches:
            by_seed: dict[int, Tensor] = {}
            seeds = self._streams.draw_seeds(purpose / batch, first // rounds)
            for seed in seeds:
                if seed not in by_seed:
                    taps = self._draw_taps(seed, rounds, blocks)
                    by_seed[seed] = taps.permute(0, 3, 2, 1)[kept]
            drawn.append(torch.stack([by_seed[seed] for seed in seeds], 1))
        h = torch.cat(drawn, 2).to(self._streams.device)  # one transfer for all trials
        return correlate_antennas(h, self._neighbours, 3)

    def _draw_taps(self, seed: int, rounds: int, blocks: int) -> Tensor:
        """Draw [rounds, blocks, A, DEVICES_PER_DRAW] on the CPU.

        They are the numbers of Sionna's RayleighBlockFading on a CPU with this seed, on any device.
        """
        generator = torch.Generator("cpu").manual_seed(seed)
        size = (rounds, blocks, self._antennas, DEVICES_PER_DRAW)
        real, imaginary = (
            torch.normal(0.0, 0.5**0.5, size, generator=generator, dtype=self._streams.dtype)
            for _ in range(2)
        )
        return torch.complex(real, imaginary)


class _Cache:
    """Cache of some devices' draws for later rounds.

    Parameters
    ----------
    draw : callable
        Maps first, rounds, kept, purpose and blocks to [kept, S, k, A, blocks].
    purpose : Purpose
        Name of the random streams.
    rounds : int
        Rounds that are drawn at a time.
    numbers : int
        Channel gains in a coherence block.
    """

    def __init__(
        self, draw: Callable[..., Tensor], purpose: Purpose, rounds: int, numbers: int
    ) -> None:
        self._draw, self._purpose = draw, purpose
        self._rounds, self._numbers = rounds, numbers
        self._first = self._split_by_round(purpose, 1, rounds)
        self._later: list[RoundBlocks] = []

    def draw(self, round: int, blocks: int) -> Tensor:
        """Return h [S, k, A, blocks]."""
        doublings = (blocks - 1).bit_length()
        for c in range(len(self._later), doublings):
            rounds = max(1, self._rounds >> c)
            self._later.append(self._split_by_round(self._purpose / f"2^{c}", 1 << c, rounds))
        parts = [self._first[round], *(later[round] for later in self._later[:doublings])]
        return torch.cat(parts, 3)[..., :blocks] if doublings else parts[0]

    def _split_by_round(self, purpose: Purpose, blocks: int, rounds: int) -> RoundBlocks:
        """Return the cache of `blocks` coherence blocks, drawn `rounds` rounds at a time.

        Fewer rounds are kept if they need much memory.
        """
        kept = rounds
        while kept > 1 and kept * blocks * self._numbers > MAX_CACHED:
            kept = 1 if kept % 2 else kept // 2  # a divisor of `rounds`

        def draw(first: int, some: int) -> Tensor:
            start = first % rounds
            stretch = slice(start, start + some)
            return self._draw(first - start, rounds, stretch, purpose, blocks)

        return RoundBlocks(draw, kept)


def build_scattering(
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


class FlatStates:
    """States of a flat channel's rounds, with the path over a reflecting surface if there is one.

    Parameters
    ----------
    channel : Channel
        The channel.
    direct : Fading
        Fading [S, K, A, B] of the direct path.
    """

    def __init__(self, channel: Channel, direct: Fading) -> None:
        settings: FlatFadingSettings = channel.settings
        self._fading, self._block_symbols = direct, settings.block_symbols
        self._gain, ris = channel.budget.gain, settings.ris
        if ris is not None:
            to_surface = build_scattering(channel, ris.elements, FADING / "ris")
            self._fading = ReflectedChannel(channel, direct, to_surface)

    def get_state(self, round: int, among: Tensor | None = None) -> ChannelState:
        """Return the state of a round, for the devices `among` [n], or for all if None."""

        def draw(blocks: int) -> Tensor:
            return self._fading.draw(round, blocks, among)[..., None]

        return build_block_state(draw(1), self._gain, self._block_symbols, draw)
