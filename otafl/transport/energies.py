"""Receive the energies of pairs of channel uses on which devices send with random phases.

On either use of a pair the server has y = sum_k h_k p_k sqrt(v_k) s_k + z at every antenna, s_k a
QPSK symbol, new for each device and real, and adds |y|^2 over its antennas. Of what is sent, mu, and
the noise that sum is |mu|^2 + 2 |mu| sqrt(r) cos theta + r, r exponential and theta uniform, with
A - 1 exponentials more for the noise of A antennas across mu.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from otafl.core.constants import constant
from otafl.core.contracts import NOISE_VARIANCE, Cohort
from otafl.core.rng import Streams, family
from otafl.transport.impairments import Impairments
from otafl.transport.pairs import OnPairs
from otafl.transport.segments import LOOP_AT_MOST, Segments

PHASES = family("random_phases", __name__)
ENERGY_NOISE = family("energy_noise", __name__)
ACROSS = family("noise_across", __name__)
INTERFERING = family("interfering_symbols", __name__)

COLUMNS = 8192
"""Pairs that are received at a time; what is made of them fits a processor's cache. Draws depend on
it."""

SYMBOLS_A_WORD = 16
"""QPSK symbols that 32 random bits make."""

ANGLE_BITS = 9
"""Of 32 random bits, those of the noise's direction: with 512 of them, evenly spaced, moments of an
energy up to that order are those of a uniform direction. In its magnitude they are rounding."""

NOISE_ENERGY = 2.0 * NOISE_VARIANCE

TOGETHER = 4
"""Uniform numbers that are multiplied before a logarithm is taken: far from underflow."""


class Piece(NamedTuple):
    """Hold columns first .. stop of a group, in `runs` equally long segments from number q on."""

    first: int
    stop: int
    q: int
    runs: int


def received(
    on_air: OnPairs,
    rows: Callable[[slice], tuple[Tensor, Tensor]],
    streams: Streams,
    impairments: Impairments,
) -> Iterator[tuple[slice, Tensor]]:
    """Yield the energies of a group's pairs, some columns after the other.

    Parameters
    ----------
    on_air : the transmission of n rows.
    rows : columns -> reals [n, C], whose signs say on which use they are sent, and the roots of
        their magnitudes, [n, C] or one for all.
    streams : of the S trials.
    impairments : interferers and a jammer.

    Yields
    ------
    The columns, and the energies [S, 2, C] of + and -, summed over the antennas.
    """
    signal, round, index = on_air.signal, on_air.slot.delivery.round, on_air.index
    cohort, antennas = signal.cohort, on_air.antennas
    others = impairments.interferers(antennas, round)
    gains = _gains(on_air, others)
    pieces = list(_pieces(on_air.segments))
    needed = [-(-(piece.stop - piece.first) // SYMBOLS_A_WORD) for piece in pieces]
    count = -(-sum(needed) // 2)
    bits = streams.device_words(PHASES / index, round, cohort.trial, cohort.device, count)
    parts = bits.view(torch.int32)[:, : sum(needed)].split(needed, 1)
    noise = streams.words(ENERGY_NOISE / index, round, signal.reals)
    across = heard = None
    if antennas > 1:
        across = streams.uniform(ACROSS / index, round, (antennas - 1, 2, signal.reals))
    if others is not None:
        shape = (2, others.shape[1], 2, signal.reals)
        heard = streams.normal(INTERFERING / index, round, shape) * math.sqrt(2.0)
    for piece, words in zip(pieces, parts, strict=True):
        columns = slice(piece.first, piece.stop)
        sent = _symbols(cohort, *rows(columns), words)
        if heard is not None:
            sent = torch.cat([sent, heard[..., columns]], 2)
        energy = _energy(sent, gains, piece)
        _add_noise(energy, noise[:, columns])
        if across is not None:
            for some in across[..., columns].split(TOGETHER, 1):
                energy -= some.prod(1).log_().mul_(NOISE_ENERGY)
        yield columns, energy


def _pieces(segments: Segments) -> Iterator[Piece]:
    """Cut a group in pieces of about `COLUMNS` pairs: parts of long segments, several short ones
    together where they are even."""
    length, many = segments.even, len(segments.bounds) > LOOP_AT_MOST
    whole = segments.symbols // length if length and many else 0
    runs = max(1, COLUMNS // length) if length else 1
    for q in range(0, whole, runs):
        stop = min(q + runs, whole)
        yield Piece(q * length, stop * length, q, stop - q)
    for q, (first, stop) in enumerate(segments.bounds[whole:], whole):
        for start in range(first, stop, COLUMNS):
            yield Piece(start, min(start + COLUMNS, stop), q, 1)


def _gains(on_air: OnPairs, others: Tensor | None) -> Tensor:
    """Return what the two bits of each row's symbol are multiplied with on their way to the real
    and the imaginary part at each antenna, [S, Q, 2 A, 2 (m + J)], m the most rows of a trial and J
    interferers [S, J, A]."""
    sent, cells = on_air.sent, list(on_air.segments.cells)
    h = sent.at_rows(on_air.slot.h)[..., cells] * on_air.row_amplitude[:, None, None]
    rows = by_trial(sent.cohort, h)  # [S, m, A, Q]
    if others is not None:
        rows = torch.cat([rows, others[..., None].expand(-1, -1, -1, len(cells))], 1)
    both = torch.view_as_real(torch.stack([rows, 1j * rows], 1)) * math.sqrt(0.125)
    return both.permute(0, 4, 3, 5, 1, 2).flatten(4).flatten(2, 3)


def _symbols(cohort: Cohort, x: Tensor, roots: Tensor, words: Tensor) -> Tensor:
    """Return the two bits of each row's symbol, plus or minus its root, and the same times the sign
    of x: [S, 2, m, 2, C]. Half their sum goes on one use, half their difference on the other; one
    of the two is zero.

    Parameters
    ----------
    x : [n, C].
    roots : [n, C], or one for all; not negative.
    words : [n, C / 16 or more] int32, random.
    """
    integer = torch.int32 if x.dtype == torch.float32 else torch.int64
    top = torch.iinfo(integer).min
    if integer == torch.int64:
        words = words.to(integer) << 32
    places = constant(tuple(range(2 * SYMBOLS_A_WORD)), integer, x.device)[:, None]
    flips = (words[:, None] << places).bitwise_and_(top).unflatten(1, (2, -1)).flatten(2)
    flips = by_trial(cohort, flips[..., : x.shape[1]]).transpose(1, 2)  # [S, 2, m, C]
    sizes = by_trial(cohort, roots.expand_as(x)).view(integer)[:, None]
    out = torch.empty((*flips.shape[:3], 2, x.shape[1]), dtype=integer, device=x.device)
    torch.bitwise_xor(flips, sizes, out=out[..., 0, :])
    minus = by_trial(cohort, x.view(integer) & top)[:, None]
    torch.bitwise_xor(out[..., 0, :], minus, out=out[..., 1, :])
    return out.view(x.dtype)


def by_trial(cohort: Cohort, rows: Tensor) -> Tensor:
    """Return rows [n, ...] as [S, m, ...], m the most that a trial has; zeros where it has fewer."""
    most = max(1, *cohort.counts)
    shape = (cohort.trials, most, *rows.shape[1:])
    if len(rows) == cohort.trials * most:
        return rows.view(shape)
    before = cohort.rows_of.long().cumsum(0) - cohort.rows_of.long()
    place = torch.arange(len(rows), device=rows.device) - before[cohort.trial]
    table = rows.new_zeros(shape)
    table[cohort.trial, place] = rows
    return table


def _energy(sent: Tensor, gains: Tensor, piece: Piece) -> Tensor:
    """Return |mu|^2 [S, 2, C] of symbols [S, 2, m, 2, C], added over the antennas."""
    trials, width, runs = len(sent), sent.shape[-1], piece.runs
    gain = gains[:, piece.q : piece.q + runs].flatten(0, 1)  # [S R, 2 A, 2 m]
    rows = sent.flatten(1, 2)
    if runs > 1:  # [S, R, 2 m, 2, L]
        rows = rows.unflatten(-1, (runs, -1)).permute(0, 3, 1, 2, 4)
    mu = torch.bmm(gain, rows.reshape(len(gain), gain.shape[2], -1))
    size, signed = mu.unflatten(2, (2, -1)).unbind(2)  # [S R, 2 A, L] each
    energy = torch.empty(len(gain), 2, size.shape[2]).to(mu)
    for use, both in enumerate((size + signed, size - signed)):
        first, *others = both.unbind(1)
        torch.mul(first, first, out=energy[:, use])
        for other in others:
            energy[:, use].addcmul_(other, other)
    if runs == 1:
        return energy
    return energy.view(trials, runs, 2, -1).transpose(1, 2).reshape(trials, 2, width)


def _add_noise(energy: Tensor, words: Tensor) -> None:
    """Turn |mu|^2 [S, 2, C] into the energy with one antenna's noise, by random words [S, C] int64,
    in place."""
    bits = words.contiguous().view(torch.int32).view_as(energy)
    r = bits.to(energy.dtype).mul_(2.0**-32).add_(0.5).clamp_min_(2.0**-33)
    r = r.log_().mul_(-NOISE_ENERGY)
    angles = torch.arange(1 << ANGLE_BITS, device=bits.device, dtype=energy.dtype)
    cosines = (angles * (2.0 * math.pi / len(angles))).cos_()
    theta = (bits & (len(angles) - 1)).flatten()
    cross = (energy * r).sqrt_().mul_(cosines.index_select(0, theta).view_as(energy))
    energy.add_(r).add_(cross, alpha=2.0)
