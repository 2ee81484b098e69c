"""Common parts of fading: streams, blocks of rounds, states, and correlation of antennas."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

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
    """

    def __init__(
        self,
        draw: Callable[[int, int], Tensor],
        length: int = ROUNDS_PER_BLOCK,
        far_spacing: int = 1,
        grows: bool = False,
    ) -> None:
        self._draw = draw
        self._length = length
        self._far_length = length if far_spacing < length else 1
        self._grows = grows
        self._first = -1
        self._block: Tensor | None = None

    def __getitem__(self, round: int) -> Tensor:
        if self._block is None or not self._first <= round < self._first + len(self._block):
            self._first, length = self._find_block(round)
            self._block = self._draw(self._first, length)
        return self._block[round - self._first]

    def _find_block(self, round: int) -> tuple[int, int]:
        """Return the first round of a round's block, and the number of its rounds."""
        length = self._length if round < FAR else self._far_length
        if not (self._grows and 0 <= round < length):
            return round - round % length, length
        if round < FIRST_ROUNDS:
            return 0, min(FIRST_ROUNDS, length)
        first: int = 1 << (round.bit_length() - 1)
        return first, min(first, length - first)


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
