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
from otafl.uplink.signal import Segments, Signal
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

Cast = Callable[[Signal, slice, Tensor | None], Tensor]
"""Function that returns the votes of some columns, 1 or 0: [n, C], or [1, 1] if all vote.

Its arguments are rows, columns, and the pairs before the rows' crashes, [n, 1] or None.
"""

_KERNEL = "otafl.uplink.noncoherent.energy_kernel"


def receive_energies(
    on_air: Transmission,
    streams: Streams,
    impairments: Impairments,
    weight: Tensor,
    cast: Cast | None = None,
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield the energies of a group's pairs, some columns after the other.

    Parameters
    ----------
    on_air : Transmission
        Transmission of n rows, whose signs choose the use of each pair.
    streams : Streams
        Random streams of the trials.
    impairments : Impairments
        Interferers and a jammer, which add to the noise.
    weight : Tensor, float [n]
        Weights of the rows in the error-free sum.
    cast : callable, optional
        Votes of the rows; without it, energies are proportional to magnitudes.

    Yields
    ------
    tuple of slice, Tensor [S, 2, C] and Tensor [S, C]
        Columns, their energies on + and -, summed over the antennas, and the error-free sum of the
        coordinates, or of the signs of votes.
    """
    signal, round, index = on_air.signal, on_air.slot.round, on_air.sent.index
    cohort, antennas, segments = signal.cohort, on_air.slot.h.shape[2], on_air.segments
    given, others, interference = (streams, index, round), None, None
    if impairments.adds_noise:
        others = draws.draw_interferers(impairments, antennas, round)
        sizes = others.shape[1], signal.num_coordinates
        interference = draws.draw_interfering_symbols(*given, *sizes)
    kernel: Any = choose_kernel(signal, antennas) if others is None else None
    ways = _ways(on_air)
    gains = _gains(cohort.pad_by_trial(ways), others) if kernel is None else None
    blocks = -(-signal.num_coordinates // BLOCK)
    run = min(RUN, -(-signal.num_coordinates // PLACES))  # a short payload fills no block
    bits = draws.draw_symbol_bits(*given, cohort, -(-blocks * run // 2))
    bits = bits[:, : blocks * run].unflatten(1, (blocks, run))
    noise, across = draws.draw_energy_noise(*given, antennas, signal.num_coordinates)
    rows = cohort.num_rows if kernel is None else 4 * cohort.num_trials
    most = max(1, NUMBERS // (BLOCK * max(1, rows)))
    for block in range(0, blocks, most):
        columns = slice(block * BLOCK, min((block + most) * BLOCK, signal.num_coordinates))
        votes, exact = None if cast is None else cast(signal, columns, on_air.stop), None
        words = bits[:, block : block + most]
        if gains is None:
            energy, exact = kernel.draw_energies(
                signal, columns, votes, words, ways, segments, weight
            )
        else:
            x = signal.x[:, columns] + 0.0  # turns -0.0 into 0.0
            sent = _draw_symbols(cohort, x, x.abs().sqrt_() if votes is None else votes, words)
            if interference is not None:
                sent = torch.cat([sent, interference[..., columns]], 2)
            energy = _energy(sent, gains, segments, columns)
        if exact is None or on_air.stop is not None:
            exact = _exact(on_air.sent, weight, columns, cast)
        _add_noise(energy, noise[:, columns])
        if across is not None:
            energy.sub_(across[..., columns].log().sum(1), alpha=NOISE_ENERGY)
        yield columns, energy, exact


def _draw_symbols(cohort: Cohort, x: Tensor, roots: Tensor, words: Tensor) -> Tensor:
    """Return the bits of each row's QPSK symbol with its amplitude: [S, 2, m, 2, C].

    The last axis but one has both bits, and both times the sign of x. Half the sum of the two goes
    on one use of the pair, half the difference on the other, and one of the two is zero.

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
    places = get_constant(tuple(range(2 * PLACES)), torch.int32, x.device).view(2, 1, PLACES, 1)
    negative = (words[:, None, :, None] << places).flatten(2)[..., : x.shape[1]] < 0
    sizes = cohort.pad_by_trial(roots.expand_as(x))[:, None]
    bits = torch.where(cohort.pad_by_trial(negative).transpose(1, 2), -sizes, sizes)
    sign = cohort.pad_by_trial(torch.ones_like(x).copysign(x))[:, None]
    return torch.stack([bits, bits * sign], 3)


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
        Symbols, as of `_draw_symbols`.
    gains : Tensor, float [S, Q, 2 A, 2 m]
        Gains of the segments.
    segments : Segments
        Segments of the group.
    columns : slice
        Columns of the group.
    """
    rows = sent.flatten(1, 2)  # [S, 2 m, 2, C]
    if segments.are_short(gains[:, 0].numel()):
        index = segments.index_segments(gains.device)[columns]
        mu = torch.einsum("sjac,scuj->sauj", gains[:, index], rows)
    else:
        parts = [
            torch.einsum("sac,scuj->sauj", gains[:, q], rows[..., part])
            for q, part in segments.split(columns)
        ]
        mu = parts[0] if len(parts) == 1 else torch.cat(parts, 3)
    size, signed = mu.unbind(2)  # [S, 2 A, C] each
    energy = mu.new_empty(len(mu), 2, mu.shape[3])
    for use, both in enumerate((size + signed, size - signed)):
        first, *others = both.unbind(1)
        torch.mul(first, first, out=energy[:, use])
        for other in others:
            energy[:, use].addcmul_(other, other)
    return energy


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
