"""Compiled sum of energies at a few antennas, in one pass over a payload on the CPU.

A coordinate costs a root, two random bits and, for each antenna, four products. Tensor operations
write each intermediate result to memory before the next one reads it, which takes two to five times
as long with one antenna.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core.compiled_module import compile_loop
from otafl.uplink.noncoherent.energies import BLOCK
from otafl.uplink.signal import Segments, Signal

TILE = BLOCK // 2
"""Columns whose sums fit the processor's first-level cache."""

_compile = functools.partial(compile_loop, fastmath=frozenset({"contract", "nsz", "reassoc"}))


def draw_energies(
    sent: Signal,
    columns: slice,
    votes: Tensor | None,
    words: Tensor,
    ways: Tensor,
    segments: Segments,
    weight: Tensor,
) -> tuple[Tensor, Tensor]:
    """Compute the noiseless energies of a part of a payload that starts with a block.

    Parameters
    ----------
    sent : Signal
        The n rows.
    columns : slice
        The C columns of the part.
    votes : Tensor, float [n, C], [1, 1] or None
        Energies of the rows, one value for all, or |x| if None.
    words : Tensor, int32 [n, blocks, run]
        Random bits. The first half of each word's bits are signs of real parts, one for each run of
        a block, the second half of imaginary parts.
    ways : Tensor, complex [n, A, Q]
        Received amplitude of a unit magnitude.
    segments : Segments
        Segments of the group.
    weight : Tensor, float [n]
        Weights in the error-free sum.

    Returns
    -------
    energy : Tensor, float [S, 2, C]
        |mu|^2, summed over the antennas.
    exact : Tensor, float [S, C]
        Error-free sum of the coordinates, or of the signs of votes.
    """
    x, shape = sent.x, (sent.cohort.num_trials, columns.stop - columns.start)
    energy, exact = x.new_zeros(shape[0], 2, shape[1]), x.new_zeros(shape)
    cast = x.new_empty(0, 0) if votes is None else votes
    parts = torch.view_as_real(ways * math.sqrt(0.5)).to(x.dtype)
    starts = np.array([first for first, _ in segments.bounds] + [segments.symbols])
    rows = (x[:, columns], cast, words, parts, weight.to(x.dtype), sent.cohort.trial)
    arrays = [each.contiguous().numpy() for each in rows]
    _add_up(*arrays, starts - columns.start, energy.numpy(), exact.numpy())
    return energy, exact


@_compile
def _hear(
    numbers: Any,
    cast: Any,
    word: Any,
    way: Any,
    by_size: bool,
    place: int,
    plus_re: Any,
    plus_im: Any,
    minus_re: Any,
    minus_im: Any,
) -> None:
    """Add the signal of a row's symbols at one antenna."""
    none = numbers.dtype.type(0)
    high, low = np.int32(np.int64(1) << (31 - place)), np.int32(1 << (15 - place))
    way_re, way_im = way[0], way[1]  # unpacking is slow
    for c in range(len(numbers)):
        root = math.sqrt(abs(numbers[c])) if by_size else cast[c]
        re = -root if word[c] & high else root
        im = -root if word[c] & low else root
        mu_re, mu_im = re * way_re - im * way_im, re * way_im + im * way_re
        on_re = mu_re if numbers[c] >= 0 else none
        on_im = mu_im if numbers[c] >= 0 else none
        plus_re[c] += on_re
        plus_im[c] += on_im
        minus_re[c] += mu_re - on_re
        minus_im[c] += mu_im - on_im


@_compile
def _add_squares(re: Any, im: Any, energy: Any) -> None:
    for c in range(len(energy)):
        energy[c] += re[c] * re[c] + im[c] * im[c]


@_compile
def _add_up(
    x: Any,
    votes: Any,
    words: Any,
    ways: Any,
    weight: Any,
    trial: Any,
    starts: Any,
    energy: Any,
    exact: Any,
) -> None:
    """Compute `draw_energies` for columns in which segments begin at `starts`, tile by tile."""
    run, antennas, by_size = words.shape[2], ways.shape[1], len(votes) == 0
    sums = np.empty((antennas, 4, TILE), x.dtype)
    cast = np.ones(TILE, x.dtype)
    if votes.size == 1:
        cast[:] = votes[0, 0]
    for begin in range(0, energy.shape[2], TILE):
        size = min(TILE, energy.shape[2] - begin)
        block, ahead = begin // BLOCK, begin % BLOCK
        row = 0
        while row < len(x):
            here = trial[row]
            total = exact[here, begin : begin + size]
            sums[:] = 0
            while row < len(x) and trial[row] == here:
                numbers = x[row, begin : begin + size]
                if votes.size > 1:
                    cast = votes[row, begin : begin + size]
                for c in range(size):
                    vote = cast[c] if numbers[c] >= 0 else -cast[c]
                    total[c] += weight[row] * (numbers[c] if by_size else vote)
                segment = np.searchsorted(starts, begin, side="right") - 1
                at = 0
                while at < size:  # a part in which neither the segment nor the bits' place changes
                    place = (ahead + at) // run
                    unused = ahead - place * run
                    to = min(size, run - unused, starts[segment + 1] - begin)
                    word = words[row, block, at + unused : to + unused]
                    for a in range(antennas):
                        _hear(
                            *(numbers[at:to], cast[at:to], word, ways[row, a, segment]),
                            *(by_size, place, sums[a, 0, at:to], sums[a, 1, at:to]),
                            *(sums[a, 2, at:to], sums[a, 3, at:to]),
                        )
                    at = to
                    segment += at + begin == starts[segment + 1]
                row += 1
            for a in range(antennas):
                _add_squares(sums[a, 0], sums[a, 1], energy[here, 0, begin : begin + size])
                _add_squares(sums[a, 2], sums[a, 3], energy[here, 1, begin : begin + size])
