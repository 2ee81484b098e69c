"""Received energies of pairs of channel uses on which devices transmit with random phases.

On each use of a pair, every antenna receives y = sum_k h_k p_k sqrt(v_k) s_k + z. The QPSK symbol
s_k is new for each device and coordinate. The server adds |y|^2 over its antennas. With mu the
noiseless signal of all antennas, that sum has the distribution of

    |mu|^2 + 2 |mu| sqrt(r) cos theta + r,

with r exponential and theta uniform, plus A - 1 exponential terms for the noise of A antennas
orthogonal to mu.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from otafl.core.compiled_module import load_loops
from otafl.core.contracts import NOISE_VARIANCE, Cohort
from otafl.core.rng import Streams
from otafl.core.tensors import get_constant
from otafl.uplink import noise as draws
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.signal import MAX_LOOP, Segments, Signal
from otafl.uplink.transmission import Transmission

NUMBERS = 1 << 17
"""Real numbers that are received at a time.

With fewer, dispatch takes longer; more do not fit the cache.
"""

MAX_ANTENNAS = 8
"""Largest number of antennas for the compiled sum; with more, one matrix product serves all."""

AT_LEAST = 256
"""Smallest number of coordinates for the compiled sum; runs of a shorter payload are too short."""

RUN = 128
"""Pairs whose random bits have the same position in consecutive words."""

PLACES = 16
"""QPSK symbols from 32 random bits."""

BLOCK = RUN * PLACES

ANGLE_BITS = 9
"""Bits, out of 32 random ones, that choose the direction of the noise.

With 2^9 evenly spaced directions, moments of an energy up to order 512 are those of a uniform
one. In the magnitude of the noise these bits are rounding.
"""

NOISE_ENERGY = 2.0 * NOISE_VARIANCE
"""Mean noise energy of a channel use at one antenna."""

TOGETHER = 4
"""Uniform numbers that are multiplied before a logarithm is taken, far from underflow."""

Cast = Callable[[Signal, slice, Tensor | None], Tensor]
"""Function that returns the votes of some columns, 1 or 0: [n, C], or [1, 1] if all vote.

Its arguments are rows, columns, and the pairs before the rows' crashes, [n, 1] or None.
"""

_KERNEL = "otafl.uplink.noncoherent.energy_kernel"


class Energies:
    """Received energies of the pairs of S trials.

    Parameters
    ----------
    streams : Streams
        Random streams of the trials.
    impairments : Impairments
        Interferers and a jammer, which add to the noise.
    """

    def __init__(self, streams: Streams, impairments: Impairments) -> None:
        self._streams, self._impairments = streams, impairments
        self._room: dict[str, Tensor] = {}

    def receive_symbols(
        self, on_air: Transmission, weight: Tensor, cast: Cast | None = None
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield the energies of a group's pairs, some columns after the other.

        Parameters
        ----------
        on_air : Transmission
            Transmission of n rows, whose signs choose the use of each pair.
        weight : Tensor, float [n]
            Weights of the rows in the error-free sum.
        cast : callable, optional
            Votes of the rows; without it, energies are proportional to magnitudes.

        Yields
        ------
        tuple of slice, Tensor [S, 2, C] and Tensor [S, C]
            Columns, their energies on + and -, summed over the antennas, and the error-free sum of
            the coordinates, or of the signs of votes.
        """
        signal, round, index = on_air.signal, on_air.slot.round, on_air.sent.index
        cohort, antennas, streams = signal.cohort, on_air.slot.h.shape[2], self._streams
        others = None
        if self._impairments.adds_noise:
            others = draws.draw_interferers(self._impairments, antennas, round)
        kernel: Any = choose_kernel(signal, antennas) if others is None else None
        ways = _ways(on_air)
        gains = _gains(cohort.pad_by_trial(ways), others) if kernel is None else None
        blocks = -(-signal.num_coordinates // BLOCK)
        run = min(RUN, -(-signal.num_coordinates // PLACES))  # a short payload fills no block
        count = -(-blocks * run // 2)
        bits = draws.draw_symbol_bits(streams, index, round, cohort, count)
        bits = bits[:, : blocks * run].unflatten(1, (blocks, run))
        given = streams, index, round
        noise, across = draws.draw_energy_noise(*given, antennas, signal.num_coordinates)
        interference = None
        if others is not None:
            count = others.shape[1]
            interference = draws.draw_interfering_symbols(*given, count, signal.num_coordinates)
        rows = cohort.num_rows if kernel is None else 4 * cohort.num_trials
        most = max(1, NUMBERS // (BLOCK * max(1, rows)))
        for block in range(0, blocks, most):
            columns = slice(block * BLOCK, min((block + most) * BLOCK, signal.num_coordinates))
            votes, exact = None if cast is None else cast(signal, columns, on_air.stop), None
            words = bits[:, block : block + most]
            if gains is None:
                energy, exact = kernel.draw_energies(
                    *(signal, columns, votes, words, ways, on_air.segments, weight)
                )
            else:
                x = signal.x[:, columns] + 0.0  # turns -0.0 into 0.0
                sent = self._symbols(cohort, x, x.abs().sqrt_() if votes is None else votes, words)
                if interference is not None:
                    sent = torch.cat([sent, interference[..., columns]], 2)
                energy = _energy(sent, gains, on_air.segments, columns)
            if exact is None or on_air.stop is not None:
                exact = _exact(on_air.sent, weight, columns, cast)
            _add_noise(energy, noise[:, columns])
            if across is not None:
                for some in across[..., columns].split(TOGETHER, 1):
                    energy -= some.prod(1).log_().mul_(NOISE_ENERGY)
            yield columns, energy, exact

    def _symbols(self, cohort: Cohort, x: Tensor, roots: Tensor, words: Tensor) -> Tensor:
        """Return the bits of each row's QPSK symbol with its amplitude: [S, 2, m, 2, C].

        The last axis but one has both bits, and both times the sign of x. Half the sum of the two
        goes on one use of the pair, half the difference on the other, and one of the two is zero.

        Parameters
        ----------
        cohort : Cohort
            The n rows, m of each trial.
        x : Tensor, float [n, C]
            Coordinates, whose signs choose the use.
        roots : Tensor, float [n, C], or [1, 1] for all
            Amplitudes, not negative.
        words : Tensor, int32 [n, C / BLOCK, RUN]
            Random bits; one shorter run for a payload shorter than a block.
        """
        integer = torch.int32 if x.dtype == torch.float32 else torch.int64
        top = torch.iinfo(integer).min
        if integer == torch.int64:
            words = words.to(integer) << 32
        places = get_constant(tuple(range(2 * PLACES)), integer, x.device).view(2, 1, PLACES, 1)
        room = self._get_buffer(
            "flips", (len(x), 2, words.shape[1], PLACES, words.shape[2]), integer, x.device
        )
        flips = torch.bitwise_left_shift(words[:, None, :, None], places, out=room)
        flips = flips.bitwise_and_(top).flatten(2)[..., : x.shape[1]]
        flips = cohort.pad_by_trial(flips).transpose(1, 2)
        sizes = cohort.pad_by_trial(roots.expand_as(x)).view(integer)[:, None]
        minus = cohort.pad_by_trial(x.view(integer) & top)[:, None]
        shape = (*flips.shape[:3], 2, x.shape[1])
        out = self._get_buffer("symbols", shape, integer, x.device)
        torch.bitwise_xor(flips, sizes, out=out[..., 0, :])
        torch.bitwise_xor(out[..., 0, :], minus, out=out[..., 1, :])
        return out.view(x.dtype)

    def _get_buffer(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Return a tensor to write to, the same one for the same name and shape.

        Allocating memory for every part of a payload costs more than writing to it.
        """
        room = self._room.get(name)
        if room is None or room.shape != shape:
            room = self._room[name] = torch.empty(shape, dtype=dtype, device=device)
        return room


def _exact(sent: Signal, weight: Tensor, columns: slice, cast: Cast | None) -> Tensor:
    """Return the error-free sum of some columns, [S, C]."""
    rows = sent.x[:, columns]
    if cast is not None:
        rows = torch.copysign(cast(sent, columns, None), rows + 0.0)
    return sent.sum(weight[:, None], rows)[:, 0]


def _ways(on_air: Transmission) -> Tensor:
    """Return the received amplitude of a unit magnitude, [n, A, Q] complex."""
    sent = on_air.sent
    h = sent.take_rows(on_air.slot.h)[..., list(on_air.segments.cells)]
    amplitude = sent.take_rows(on_air.scalars.p[:, 0].real) * on_air.scale.sqrt()
    return h * amplitude[:, None, None].to(sent.x.dtype)


def choose_kernel(sent: Signal, antennas: int) -> Any:
    """Return the compiled module for the energies of a payload; None if tensor operations serve."""
    fits = antennas <= MAX_ANTENNAS and sent.num_coordinates >= AT_LEAST
    return load_loops(_KERNEL, sent.x.device) if fits else None


def _gains(rows: Tensor, others: Tensor | None) -> Tensor:
    """Return the real matrices from symbol bits to antennas, [S, Q, 2 A, 2 (m + J)].

    They map the two bits of each symbol to the real and the imaginary part at each antenna, given
    the amplitudes `rows` [S, m, A, Q] of m rows of a trial and `others` [S, J, A] of J interferers.
    """
    if others is not None:
        rows = torch.cat([rows, others[..., None].expand(-1, -1, -1, rows.shape[3])], 1)
    both = torch.view_as_real(torch.stack([rows, 1j * rows], 1)) * math.sqrt(0.125)
    return both.permute(0, 4, 3, 5, 1, 2).flatten(4).flatten(2, 3)


def _energy(sent: Tensor, gains: Tensor, segments: Segments, columns: slice) -> Tensor:
    """Compute |mu|^2 [S, 2, C], summed over the antennas.

    Parameters
    ----------
    sent : Tensor, float [S, 2, m, 2, C]
        Symbols, as of `Energies._symbols`.
    gains : Tensor, float [S, Q, 2 A, 2 m]
        Gains of the segments.
    segments : Segments
        Segments of the group.
    columns : slice
        Columns of the group.
    """
    rows = sent.flatten(1, 2)  # [S, 2 m, 2, C]
    if len(segments.bounds) == 1:
        mu = torch.bmm(gains[:, 0], rows.flatten(2)).unflatten(2, (2, -1))
    else:
        mu = rows.new_empty(len(rows), gains.shape[2], *rows.shape[2:])
        for q, runs, part in _parts(segments, columns):
            gain = gains[:, q : q + runs].flatten(0, 1)
            some = rows[..., part].unflatten(3, (runs, -1)).permute(0, 3, 1, 2, 4)
            product = torch.bmm(gain, some.flatten(0, 1).flatten(2))
            product = product.view(len(rows), runs, -1, 2, (part.stop - part.start) // runs)
            mu[..., part] = product.permute(0, 2, 3, 1, 4).flatten(3)
    size, signed = mu.unbind(2)  # [S, 2 A, C] each
    energy = mu.new_empty(len(mu), 2, mu.shape[3])
    for use, both in enumerate((size + signed, size - signed)):
        first, *others = both.unbind(1)
        torch.mul(first, first, out=energy[:, use])
        for other in others:
            energy[:, use].addcmul_(other, other)
    return energy


def _parts(segments: Segments, columns: slice) -> Iterator[tuple[int, int, slice]]:
    """Yield the segments of some columns, and their part of the columns.

    Consecutive segments of equal length that lie within the columns come together: the first one's
    number, how many they are (else one), and their columns.
    """
    first, stop, length = columns.start, columns.stop, segments.even
    q = 0
    if length and len(segments.bounds) > MAX_LOOP:
        q = first // length
    while q < len(segments.bounds) and segments.bounds[q][0] < stop:
        start, end = segments.bounds[q]
        runs = 1
        if length and start >= first:
            runs = max(1, (stop - start) // length)
            runs = min(runs, segments.symbols // length - q) or 1
            end = min(start + runs * length, end if runs == 1 else stop)
        if end > first:
            yield q, runs, slice(max(start, first) - first, min(end, stop) - first)
        q += runs


def _add_noise(energy: Tensor, words: Tensor) -> None:
    """Add one antenna's noise to |mu|^2 [S, 2, C] in place, given random words [S, C] int64."""
    bits = words.contiguous().view(torch.int32).view_as(energy)
    r = bits.to(energy.dtype).mul_(2.0**-32).add_(0.5).clamp_min_(2.0**-33)
    r = r.log_().mul_(-NOISE_ENERGY)
    angles = torch.arange(1 << ANGLE_BITS, device=bits.device, dtype=energy.dtype)
    cosines = (angles * (2.0 * math.pi / len(angles))).cos_()
    theta = (bits & (len(angles) - 1)).flatten()
    cross = (energy * r).sqrt_().mul_(cosines.index_select(0, theta).view_as(energy))
    energy.add_(r).add_(cross, alpha=2.0)
