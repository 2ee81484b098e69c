r"""Counts of the devices that send each codeword of a vector quantiser, by unsourced access.

Q coordinates of an update are a block. A device rounds a block to the nearest of M = 2^J codewords,
which all share, and sends the common sequence of that codeword: L complex symbols with energy one,
a column of A [L, M]. All devices send at once, with inverted channel. The server receives

.. math::

    y = A n + w,

where n_j of the K devices on air have codeword v_j, and estimates the counts n by approximate
message passing. The mean is sum_j n_j v_j / K. Who sent what remains unknown to it, and no device
has a sequence of its own, so L does not grow with the number of devices. A block takes L channel
uses, of which M may be more.

Devices divide by the root mean square of all of them, a real number of side information from each;
another tells whether the device is on air. Codewords are those of normal numbers, drawn from a
shared seed, or move with the last aggregate by Lloyd's algorithm. The server then broadcasts them.

Every device adds one to a count: for a weighted mean of K devices it rounds K w_k x_k. The L uses
of a block have the fade of the first.

References
----------
Qiao, Gao, Mashhadi, Gunduz 2024, "Massive Digital Over-the-Air Computation for
    Communication-Efficient Federated Edge Learning", arXiv 2405.15969.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import Broadcast
from otafl.core.errors import UserError
from otafl.core.problems import Problem
from otafl.core.rng import Streams, declare_family
from otafl.uplink import noise
from otafl.uplink.base import Counts, Parts, Transport
from otafl.uplink.delivery import Delivery, lay_out
from otafl.uplink.levels import refuse_misaligned
from otafl.uplink.report import collect_coefficients
from otafl.uplink.signal import Signal, compute_squared_norm, cut, split_columns
from otafl.uplink.transmission import Transmission, account, receive, transmit
from otafl.uplink.type_based.type_based import find_nearest_type

SEQUENCES = declare_family("common_sequences", __name__)
CODEWORDS = declare_family("codewords", __name__)

CHUNK = 1 << 14
"""Counts of a trial that are received at a time. Draws depend on it."""

NUMBERS_AT_ONCE = 1 << 22
"""Probabilities of counts that are computed at a time."""

LLOYD_STEPS = 10
SAMPLES = 64
"""Normal blocks for each codeword, from which the first codewords are computed."""

FEW = 100
"""Number of devices up to which all counts are weighed."""

TINY = 1e-30


Count = Callable[[Tensor, slice, int], Tensor]
"""Function that returns the counts [S, C, M] of some blocks: words int64 [n, C], columns, part."""


class CodewordSettings(Transport.Settings):
    """Common settings of transports that count the codewords of a vector quantiser."""

    block: int = Field(8, ge=1, le=256)
    """Q, coordinates of a block"""
    bits: int = Field(6, ge=1, le=12)
    """J, where a block has 2^J codewords"""
    length: int = Field(24, ge=1, le=4096)
    """L, complex symbols of a sequence, the channel uses of a block"""
    codebook: Literal["normal", "aggregate"] = "normal"
    """codewords: of normal numbers, from a shared seed (normal), or computed by the server from
    the last aggregate and broadcast (aggregate)"""
    iterations: int = Field(20, ge=1, le=1000)
    """steps of the server's estimate of the counts"""
    project: Literal["none", "lattice"] = "none"
    """counts that the server uses: its estimates (none), or the nearest non-negative integers with
    sum K (lattice)"""

    small: ClassVar = {"bits": 3, "length": 6, "iterations": 5}


class CodewordCounts(Transport):
    """Counts of codewords; a scheme says how sequences are sent and counted."""

    state_attrs: ClassVar[tuple[str, ...]] = ("_codewords",)
    provides: ClassVar[frozenset[str]] = frozenset({"mean"})
    counts: ClassVar[Counts] = "shared"

    def __init__(self, settings: Any, parts: Parts) -> None:
        super().__init__(settings, parts)
        self._codewords: dict[int, Tensor] = {}

    @functools.cached_property
    def _shared(self) -> Streams:
        """Random numbers that server and all devices of all trials know."""
        return self.parts.streams.make_common()

    @functools.cached_property
    def sequences(self) -> Tensor:
        """Common sequences, float [2 L, M]: real parts above imaginary ones, of energy one."""
        shape = (2 * self.settings.length, 2**self.settings.bits)
        draw = self._shared.draw_normal(SEQUENCES, 0, shape)[0]
        return draw / torch.linalg.vector_norm(draw, dim=0)

    @functools.cached_property
    def normal_codewords(self) -> Tensor:
        """Codewords of normal blocks, [1, M, Q]."""
        count, block = 2**self.settings.bits, self.settings.block
        draw = self._shared.draw_normal(CODEWORDS, 0, (SAMPLES * count, block))
        return move_codewords(draw[:, :count], draw)

    def extend_broadcast(self, broadcast: Broadcast, round: int) -> Broadcast:
        """Add the codewords that follow from the last aggregate."""
        own = sum(one.shape[1:].numel() for one in self._codewords.values())
        return replace(broadcast, side_coordinates=broadcast.side_coordinates + own)

    @abstractmethod
    def transmit(self, delivery: Delivery) -> None:
        """Send the groups one after the other.

        Rows x_k [n, P] become codewords [n, B] of B blocks, whose sequences add up.
        """

    def count_blocks(self, delivery: Delivery) -> list[int]:
        """Return the number of blocks of each group.

        Raises
        ------
        UserError
            If devices have only some of the coordinates.
        """
        if any(rows.mask is not None for rows in delivery.uplink):
            raise UserError(
                f"transport.name: '{self.settings.name}' counts blocks of coordinates, and the "
                "algorithm's devices, or the codec, have only some of them; use another "
                "transport, such as type_based"
            )
        return [-(-rows.num_coordinates // self.settings.block) for rows in delivery.uplink]

    def decode(self, on_air: Transmission, rows: Signal, count: Count, width: int) -> Tensor:
        """Return the sum of the rows that the counts say, [S, P], `width` blocks at a time."""
        settings, cohort, size = self.settings, rows.cohort, self.settings.block
        x = rows.x * rows.scale[:, None]
        power = rows.sum_by_trial(compute_squared_norm(x) / x.shape[1])
        unit = (power / cohort.rows_per_trial.clamp_min(1.0)).sqrt().to(x.dtype).clamp_min(TINY)
        padded = torch.nn.functional.pad(x / unit[cohort.trial, None], (0, -x.shape[1] % size))
        codewords = self._codewords.get(rows.index, self.normal_codewords)
        codewords = codewords.expand(cohort.num_trials, -1, -1)
        words = find_nearest(padded.unflatten(1, (-1, size)), codewords[cohort.trial])
        senders, parts = count_senders(on_air), []
        for number, at in enumerate(split_columns(on_air.sent.num_coordinates, width)):
            found = count(words[:, at], at, number)
            if settings.project == "lattice":
                found = find_nearest_type(found.mT, senders[:, None, at]).mT
            parts.append(found @ codewords)
        total = torch.cat(parts, 1)
        if settings.codebook == "aggregate":
            level = total.square().mean((1, 2), keepdim=True).sqrt()
            moved = move_codewords(codewords, total / level.clamp_min(TINY))
            self._codewords[rows.index] = moved.where(level > 0, codewords)
        return (total * unit[:, None, None]).flatten(1)[:, : x.shape[1]]

    def hand_over(
        self, on_air: Transmission, rows: Signal, total: Tensor, delivery: Delivery
    ) -> None:
        """Pass the server the mean of a group from its sum [S, P], and add error and cost.

        A device tells its root mean square, and whether it is on air.
        """
        # the transmission of blocks as one of their coordinates, for what the server gets
        block = self.settings.block
        stops = [min(stop * block, rows.num_coordinates) for _, stop in on_air.segments.bounds]
        bounds = tuple(zip([0, *stops[:-1]], stops, strict=True))
        whole = replace(
            on_air,
            sent=rows,
            segments=replace(on_air.segments, bounds=bounds),
            stop=None if on_air.stop is None else on_air.stop * block,
        )
        estimate = total * whole.expand(whole.sum_unit)
        receive(whole, estimate, rows.sum(rows.exact[:, None])[:, 0], delivery)
        account(on_air, delivery, 2)
        if self.parts.save_link:
            delivery.saved |= collect_coefficients(whole, self.parts.save_gram)


class Unsourced(CodewordCounts):
    """Unsourced access to common sequences of vector codewords (MD-AirComp)."""

    supports_snr_growth: ClassVar[bool] = True
    state_attrs: ClassVar[tuple[str, ...]] = ("_policy_state", "_shares", "_codewords")
    obeys_power: ClassVar[bool] = True

    class Settings(CodewordSettings):
        name: Literal["unsourced"] = "unsourced"

        example: ClassVar = {"power.name": "ci"}

        def check(self, scenario: Any) -> Iterable[Problem]:
            return refuse_misaligned(scenario, "counts")

    def __init__(self, settings: Settings, parts: Parts) -> None:
        super().__init__(settings, parts)
        self._policy_state = self.alignment.prepare()
        self._shares: dict[int, Tensor] = {}

    def transmit(self, delivery: Delivery) -> None:
        """Send the groups one after the other, with inverted channels."""
        length, link = self.settings.length, self.alignment
        with torch.no_grad():
            lengths = self.count_blocks(delivery)
            slot = lay_out(delivery, lengths, link.csi, delivery.limits, length)
            for uses, rows in zip(slot.group_symbols, delivery.uplink, strict=True):
                sent = make_unit_blocks(rows, len(uses))
                segments = cut(uses, slot.cell_stops)
                self._policy_state, on_air = transmit(
                    slot, sent, segments, link, self._policy_state, is_scaled=True
                )
                self.hand_over(on_air, rows, self._receive(on_air, rows), delivery)

    def _receive(self, on_air: Transmission, rows: Signal) -> Tensor:
        """Receive the counts, and return the sum of the rows that they say, [S, P]."""
        settings, cohort, signal = self.settings, rows.cohort, on_air.signal
        size = 2**settings.bits
        gain = signal.take_rows(on_air.gain.mT).to(signal.x.dtype.to_complex())
        gain = on_air.expand(gain) * signal.x
        spread = on_air.expand(on_air.sum_noise_std)
        senders = count_senders(on_air)
        shares = self._shares.get(rows.index, gain.real.new_full((1, 1), 1.0 / size))
        shares = shares.expand(cohort.num_trials, size)
        width, seen = max(1, CHUNK // size), torch.zeros_like(shares)

        def count(words: Tensor, at: slice, number: int) -> Tensor:
            drawn = noise.draw_count_noise(
                self.parts.streams,
                rows.index,
                on_air.slot.round,
                number,
                (2 * settings.length, width),
            )[..., : at.stop - at.start].mT
            y = self._superpose(cohort.pad_by_trial(words), cohort.pad_by_trial(gain[:, at]))
            y = y + drawn * spread[:, at, None]
            given = senders[:, at], shares, spread[:, at], settings.iterations
            found = estimate_counts(y, self.sequences, *given)
            seen.add_(found.sum(1))
            return found

        total = self.decode(on_air, rows, count, width)
        self._shares[rows.index] = (seen + 1.0) / (seen + 1.0).sum(1, keepdim=True)
        return total

    def _superpose(self, words: Tensor, gain: Tensor) -> Tensor:
        """Sum the sequences of words [S, K, C] with complex gains [S, K, C]: [S, C, 2 L]."""
        trials, _, blocks = words.shape
        length, matrix = self.settings.length, self.sequences
        counts = gain.new_zeros(trials, matrix.shape[1], blocks).scatter_add_(1, words, gain).mT
        real, imag = counts.real, counts.imag
        top, low = matrix[:length].mT, matrix[length:].mT
        return torch.cat([real @ top - imag @ low, real @ low + imag @ top], 2)


def make_unit_blocks(rows: Signal, count: int) -> Signal:
    """Make the signal of sequences of energy one, [n, count], before p."""
    return replace(rows, x=rows.x.new_ones(1, 1).expand(len(rows.x), count))


def count_senders(on_air: Transmission) -> Tensor:
    """Count the devices on air at each block, [S, B]."""
    return on_air.sent.sum_by_trial(on_air.expand(on_air.active_rows))


def find_nearest(blocks: Tensor, codewords: Tensor) -> Tensor:
    """Find the nearest codewords [n, B] int64 of blocks [n, B, Q], of codewords [n, M, Q]."""
    half = 0.5 * codewords.square().sum(2)[:, None]
    at_once = max(1, NUMBERS_AT_ONCE // (blocks.shape[0] * codewords.shape[1]))
    parts = blocks.split(at_once, 1)
    return torch.cat([(part @ codewords.mT - half).argmax(2) for part in parts], 1)


def move_codewords(codewords: Tensor, blocks: Tensor) -> Tensor:
    """Move codewords [S, M, Q] to the means of their blocks [S, B, Q], by Lloyd's algorithm.

    A codeword without blocks stays.
    """
    for _ in range(LLOYD_STEPS):
        index = find_nearest(blocks, codewords)[..., None].expand_as(blocks)
        total = torch.zeros_like(codewords).scatter_add_(1, index, blocks)
        count = torch.zeros_like(codewords).scatter_add_(1, index, torch.ones_like(blocks))
        codewords = torch.where(count > 0, total / count.clamp_min(1.0), codewords)
    return codewords


def estimate_counts(
    y: Tensor, matrix: Tensor, senders: Tensor, shares: Tensor, deviation: Tensor, iterations: int
) -> Tensor:
    r"""Estimate the counts of codewords from the sum of their sequences.

    Parameters
    ----------
    y : Tensor, float [S, C, m]
        Received numbers of C blocks, m = 2 L.
    matrix : Tensor, float [m, M]
        Sequences, with columns of norm one.
    senders : Tensor, float [S, C]
        Number K of devices on air.
    shares : Tensor, float [S, M]
        Share of the devices that has each codeword, as expected.
    deviation : Tensor, float [S, C]
        Standard deviation of the noise of a received number.
    iterations : int
        Number of steps.

    Returns
    -------
    Tensor, float [S, C, M]
        Estimated counts, with sum K.

    Notes
    -----
    Approximate message passing, whose denoiser eta is the mean of a binomial count given its sum
    with normal noise of variance tau^2 = |z|^2 / m:

    .. math::

        n' = \eta(n + A^T z; \tau), \quad z' = y - A n' + \frac{\sum \eta'}{m} z

    The derivative of eta is the count's variance, given the sum, over tau^2.
    """
    most = int(senders.max().item()) if senders.numel() else 0
    at_once = max(1, NUMBERS_AT_ONCE // (shares.numel() * (most + 1)))
    n = senders[..., None] * shares[:, None]
    z, best, least = y - n @ matrix.mT, n, torch.full_like(senders, math.inf)
    floor = 1e-3 * deviation.square() + TINY
    for _ in range(iterations):
        variance = torch.maximum(z.square().mean(2), floor)[..., None]
        heard = n + z @ matrix
        rows = zip(*(one.split(at_once, 1) for one in (heard, variance, senders)), strict=True)
        parts = [
            weigh_counts(one, var, k[..., None], shares[:, None], most) for one, var, k in rows
        ]
        n, spread = (torch.cat(each, 1) for each in zip(*parts, strict=True))
        off = y - n @ matrix.mT
        z = off + z * (spread.sum(2, keepdim=True) / variance / y.shape[2])
        size = off.square().sum(2)
        best = torch.where((size < least)[..., None], n, best)
        least = torch.minimum(size, least)
    return best * (senders / best.sum(2).clamp_min(TINY))[..., None]


def weigh_counts(
    heard: Tensor, variance: Tensor, senders: Tensor, shares: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """Return mean and variance [S, C, M] of binomial counts, given them with normal noise.

    Parameters
    ----------
    heard : Tensor, float [S, C, M]
        Counts with noise.
    variance : Tensor, float [S, C, 1]
        Variance of the noise.
    senders : Tensor, float [S, C, 1]
        Number K of devices.
    shares : Tensor, float [S, 1, M]
        Probabilities of the codewords.
    most : int
        Largest number of devices.
    """
    odds = shares.clamp(1e-9, 1.0 - 1e-6).logit()
    value = torch.arange(most + 1, dtype=heard.dtype, device=heard.device)
    factorial = (value + 1.0).lgamma()
    if most > FEW:
        # the counts [S, C, M, N] about the likeliest ones, which are found by halving
        peak, high = torch.zeros_like(heard), senders.expand_as(heard)
        for _ in range(most.bit_length()):
            middle = ((peak + high) / 2.0).floor()
            ratio = (
                (senders - middle) / (middle + 1.0)
            ).log() + odds  # of the next count to this one
            rises = ratio + (heard - middle - 0.5) / variance > 0.0
            peak, high = peak.where(~rises, middle + 1.0), middle.where(~rises, high)
        deviation = (1.0 / variance + 1.0 / (peak + 1.0) + 1.0 / (senders - peak + 1.0)).rsqrt()
        beside = int((6.0 * deviation.max()).ceil().item()) + 10
        first = (peak - beside).clamp(0.0, max(0, most - 2 * beside))[..., None]
        value = first + torch.arange(
            min(most, 2 * beside) + 1, dtype=heard.dtype, device=heard.device
        )
    rest = senders[..., None] - value
    ways = -factorial[value.long()] - factorial[rest.clamp_min(0.0).long()]
    near = (heard[..., None] - value).square() / (-2.0 * variance[..., None])
    likely = (near + value * odds[..., None] + ways).where(rest >= 0.0, -math.inf)
    weight = torch.softmax(likely, -1)
    mean = (weight * value).sum(-1)
    return mean, (weight * (value - mean[..., None]).square()).sum(-1)
