"""Common parts of fading: streams, also of Sionna, blocks of rounds, states, antennas."""

from __future__ import annotations

import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from otafl.channels.base import Channel
from otafl.core.contracts import ChannelState, Paths
from otafl.core.rng import Purpose, Streams, declare_family

FADING = declare_family("fading", __name__)
"""Random streams of all channels' fading."""

ROUNDS_PER_BLOCK = 64
"""Rounds that are drawn at a time."""

FIRST_ROUNDS = 16
"""Rounds of the first block where blocks grow.

They are a multiple of a processor's vectors, whose last bits can differ in an incomplete vector.
"""

FAR = 1 << 30
"""First of the rounds of long-term averages, which no run reaches."""

DRAWS = 4096
NUMBERS = 1 << 21
"""Largest number of channel gains of a trial in an average; `DRAWS` is that of rounds."""

DEVICES_PER_DRAW = 32
"""Devices that are drawn at a time, from one stream."""
MIN_ROUNDS = 8

FEW = 0.5
"""Fraction of the batches of devices up to which only the needed batches are drawn."""

BATCHES_KEPT = 256
"""Largest number of batches whose draws are kept for later rounds, if not all are drawn."""

MAX_CACHED = 1 << 23
"""Largest number of channel gains that are kept for later rounds."""


_TURN = threading.RLock()


def draw_static_uniform(
    streams: Streams, devices: int, purpose: Purpose, shape: tuple[int, ...]
) -> Tensor:
    """Draw [S, K, *shape] uniform in (0, 1), float64, constant during a run."""
    draw = streams.draw_device_uniform(purpose, 0, *streams.list_pairs(devices), shape)
    return draw.double().view(streams.num_trials, devices, *shape)


class Fading(Protocol):
    """Fading of a round's first coherence blocks, which depends only on round and block."""

    def draw(self, round: int, blocks: int, among: Tensor | None = None) -> Tensor:
        """Draw h [S, K, A, blocks], complex.

        Parameters
        ----------
        round, blocks : int
            The round, and the number of coherence blocks.
        among : Tensor, int64 [n], optional
            Devices of any trial whose fading is needed; that of others may be any finite number.
            All if None.
        """


class RoundBlocks:
    """Cache that draws many rounds at a time and returns them one by one.

    A round's numbers must not depend on where a block of rounds starts, so blocks start at
    multiples of their length.

    Parameters
    ----------
    draw : callable
        Maps the first round and the number of rounds to a Tensor [rounds, ...].
    length : int
        Rounds of a block.
    far_spacing : int
        Distance between the rounds of long-term averages, from `FAR` on. If a block would have no
        more than one of them, these rounds are drawn alone.
    grows : bool
        Whether the first block is split at `FIRST_ROUNDS` and at the powers of two above, so that a
        short run draws few rounds in vain.
    caches : bool
        Whether rounds are kept; otherwise each call draws, because the result can change.
    """

    def __init__(
        self,
        draw: Callable[[int, int], Tensor],
        length: int = ROUNDS_PER_BLOCK,
        far_spacing: int = 1,
        grows: bool = False,
        caches: bool = True,
    ) -> None:
        self._draw, self._caches = draw, caches
        self._length = length
        self._far_length = length if far_spacing < length else 1
        self._grows = grows
        self._first = -1
        self._block: Tensor | None = None

    def __getitem__(self, round: int) -> Tensor:
        first, block = self._first, self._block
        if block is None or not self._caches or not first <= round < first + len(block):
            self._first, length = self._find_block(round)
            self._block = block = self._draw(self._first, length)
        return block[round - self._first]

    def _find_block(self, round: int) -> tuple[int, int]:
        """Return the first round of a round's block, and the number of its rounds."""
        length = self._length if round < FAR else self._far_length
        if not (self._grows and 0 <= round < length):
            return round - round % length, length
        if round < FIRST_ROUNDS:
            return 0, min(FIRST_ROUNDS, length)
        first: int = 1 << (round.bit_length() - 1)
        return first, min(first, length - first)


class BatchedFading(ABC):
    """Fading that is drawn for batches of devices and many rounds at a time, and kept.

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
    purpose : Purpose
        Name of the random streams.
    """

    def __init__(self, channel: Channel, antennas: int, purpose: Purpose) -> None:
        self.antennas, self.streams = antennas, channel.streams
        self._devices, self._purpose = channel.devices, purpose
        self._rounds = max(MIN_ROUNDS, ROUNDS_PER_BLOCK // antennas)
        self._num_batches = -(-self._devices // DEVICES_PER_DRAW)
        self._all = self._get_cache(range(self._num_batches))
        self._batches: dict[int, _BatchCache] = {}

    @abstractmethod
    def draw_batch(self, seed: int, rounds: int, blocks: int) -> Tensor:
        """Draw h [rounds, blocks, A, DEVICES_PER_DRAW] of a batch in a trial, on the CPU."""

    def draw(self, round: int, blocks: int, among: Tensor | None = None) -> Tensor:
        """Return h [S, K, A, blocks]; 1 for a device whose batch is not needed."""
        if among is None or (self._num_batches == 1 and len(among)):
            return self._all.draw(round, blocks)[:, : self._devices]
        wanted = (among // DEVICES_PER_DRAW).unique().tolist()
        if len(wanted) > FEW * self._num_batches:
            return self._all.draw(round, blocks)[:, : self._devices]
        streams = self.streams
        size = (streams.num_trials, self._devices, self.antennas, blocks)
        h = torch.ones(size, dtype=streams.dtype.to_complex(), device=streams.device)
        for batch in wanted:
            here = h[:, batch * DEVICES_PER_DRAW : (batch + 1) * DEVICES_PER_DRAW]
            if batch not in self._batches:
                if len(self._batches) == BATCHES_KEPT:
                    del self._batches[next(iter(self._batches))]  # the oldest
                self._batches[batch] = self._get_cache(range(batch, batch + 1))
            here.copy_(self._batches[batch].draw(round, blocks)[:, : here.shape[1]])
        return h

    def _get_cache(self, batches: range) -> _BatchCache:
        """Make the cache of some batches."""
        numbers = self.streams.num_trials * len(batches) * DEVICES_PER_DRAW * self.antennas
        draw = functools.partial(self._draw_h, batches=batches)
        return _BatchCache(draw, self._purpose, self._rounds, numbers)

    def _draw_h(
        self, first: int, rounds: int, kept: slice, purpose: Purpose, blocks: int, batches: range
    ) -> Tensor:
        """Draw [kept, S, k, A, blocks] of the k devices of some batches.

        `kept` selects rounds from `first` on.
        """
        drawn = []
        for batch in batches:
            by_seed: dict[int, Tensor] = {}
            seeds = self.streams.draw_seeds(purpose / batch, first // rounds)
            for seed in seeds:
                if seed not in by_seed:
                    taps = self.draw_batch(seed, rounds, blocks)
                    by_seed[seed] = taps.permute(0, 3, 2, 1)[kept]
            drawn.append(torch.stack([by_seed[seed] for seed in seeds], 1))
        return torch.cat(drawn, 2).to(self.streams.device)  # one transfer for all trials


class _BatchCache:
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


def build_block_state(
    h: Tensor,
    gain: Tensor,
    block_symbols: int | None,
    later: Callable[[int], Tensor],
    paths: Callable[[int], Paths] | None = None,
) -> ChannelState:
    """Build a channel's state, whose later blocks are drawn when they are first needed.

    Parameters
    ----------
    h : Tensor, complex [S, K, A, 1, F]
        First coherence block.
    gain : Tensor, float [S, K]
        Large-scale gains.
    block_symbols : int or None
        Channel uses of a coherence block; None if it lasts for the payload.
    later : callable
        Maps a number of blocks to h [S, K, A, blocks, F], of which the first block is `h`.
    paths : callable, optional
        As in `ChannelState`.

    Returns
    -------
    ChannelState
        The state.
    """
    if block_symbols is None:
        return ChannelState(h, gain, paths_fn=paths)
    return ChannelState(h, gain, block_symbols, functools.cache(later), paths)


def correlate_antennas(h: Tensor, neighbours: float, dim: int) -> Tensor:
    """Correlate the server's antennas with the covariance R_ab = r^|a-b|.

    Parameters
    ----------
    h : Tensor, complex, any shape
        Entries of variance 1, independent along `dim`.
    neighbours : float
        Correlation r of neighbouring antennas, in [0, 1).
    dim : int
        Dimension of the antennas.

    Returns
    -------
    Tensor, complex
        Correlated entries.

    Notes
    -----
    R is the covariance of a first-order autoregression along the array. Its steps are the rows of
    R's Cholesky factor in closed form. A numerical factorisation would fail silently near r = 1.
    The fading of an antenna does not depend on the number of antennas.

    References
    ----------
    Loyka 2001, "Channel Capacity of MIMO Architecture Using the Exponential Correlation Matrix",
        IEEE Communications Letters.
    """
    if neighbours == 0.0:
        return h
    fresh = (1.0 - neighbours**2) ** 0.5
    first, *others = torch.view_as_real(h.movedim(dim, 0)).unbind(0)
    antennas = [first]
    for other in others:
        antennas.append(neighbours * antennas[-1] + fresh * other)
    return torch.view_as_complex(torch.stack(antennas, dim if dim >= 0 else dim - 1))


@contextmanager
def keep_global_state() -> Iterator[None]:
    """Restore torch's global generators, of the CPU and of GPUs, at the end.

    Sionna's import takes seconds and reseeds them, so it is imported on first use. Threads take
    turns.
    """
    with _TURN, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        yield


@contextmanager
def use_sionna_stream(seed: int, device: torch.device) -> Iterator[None]:
    """Seed Sionna's draws in this context, and restore its generator at the end.

    Sionna 2 draws from one generator for each device, `sionna.phy.config.torch_rng(device)`.
    """
    with keep_global_state():
        import sionna.phy

        generator = sionna.phy.config.torch_rng(str(device))
    with _TURN:
        state = generator.get_state()
        generator.manual_seed(seed)
        try:
            yield
        finally:
            generator.set_state(state)
