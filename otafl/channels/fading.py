"""Make fading: its streams, draws of many rounds at once, and antennas that are correlated."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from otafl.core.contracts import ChannelState, Paths
from otafl.core.rng import Purpose, Streams, declare_family

FADING = declare_family("fading", __name__)
"""The streams of all channels' fading."""

ROUNDS_PER_BLOCK = 64

FAR = 1 << 30
"""First of the rounds that long-term averages are over; no run gets there."""

DRAWS = 4096
NUMBERS = 1 << 21
"""Most rounds, and most channel gains of a trial, of an average."""


def draw_static_uniform(
    streams: Streams, devices: int, purpose: Purpose, shape: tuple[int, ...]
) -> Tensor:
    """Draw [S, K, *shape] uniform in (0, 1), for the whole run; double."""
    pair = torch.arange(streams.num_trials * devices, device=streams.device)
    draw = streams.draw_device_uniform(purpose, 0, pair // devices, pair % devices, shape)
    return draw.double().view(streams.num_trials, devices, *shape)


class Fading(Protocol):
    """Fading gives h of a round's first so many coherence blocks, by round and block alone."""

    def draw(self, round: int, blocks: int, among: Tensor | None = None) -> Tensor:
        """Draw h [S, K, A, blocks], complex. among: devices [n] int64, of any trial; what is said
        of others may be anything finite. None: all."""


class RoundBlocks:
    """Draw many rounds at once, and hand them out round by round.

    draw(first round, rounds) -> [rounds, ...]. A round's numbers must not depend on where a block
    of rounds starts, so blocks start at multiples of their length.
    """

    def __init__(self, draw: Callable[[int, int], Tensor], length: int = ROUNDS_PER_BLOCK) -> None:
        self._draw = draw
        self._compute_squared_length = length
        self._first = -1
        self._block: Tensor | None = None

    def __getitem__(self, round: int) -> Tensor:
        first = round - round % self._compute_squared_length
        if self._block is None or first != self._first:
            self._first, self._block = first, self._draw(first, self._compute_squared_length)
        return self._block[round - first]


def build_block_state(
    h: Tensor,
    gain: Tensor,
    block_symbols: int | None,
    later: Callable[[int], Tensor],
    paths: Callable[[int], Paths] | None = None,
) -> ChannelState:
    """Return a channel's state, whose later blocks are drawn once, when they are asked for.

    Parameters
    ----------
    h : [S, K, A, 1, F], the first block.
    gain : [S, K].
    block_symbols : channel uses of a coherence block; None where it lasts for the payload.
    later : blocks -> [S, K, A, blocks, F], the first of them h.
    paths : as in `ChannelState`.
    """
    if block_symbols is None:
        return ChannelState(h, gain, paths_fn=paths)
    return ChannelState(h, gain, block_symbols, functools.cache(later), paths)


def correlate_antennas(h: Tensor, neighbours: float, dim: int) -> Tensor:
    """Correlate the server's antennas: entries of variance 1, independent along `dim`, get the
    covariance R_ab = r^|a-b|, r = `neighbours` in [0, 1). h: complex, any shape.

    R is the covariance of a first-order autoregression along the array, whose steps are the rows of
    R's Cholesky factor in closed form: nothing is factorised, which fails silently near r = 1, and
    an antenna's fading does not depend on how many there are.

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
