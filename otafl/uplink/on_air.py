"""Hold a group at the stations of its way over the air: the symbols that devices have, the scalar
channels behind the server's combiner, and the transmission that the power policy makes of both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from otafl.core.constants import constant
from otafl.core.contracts import Blocks, Coefficients, Cohort
from otafl.uplink.interleaving import Uses
from otafl.uplink.limits import Bounds, SentPart
from otafl.uplink.segments import Segments, energies, segment_sums, stretch_means
from otafl.uplink.superpose import Signal, squared_norm


@dataclass(frozen=True)
class Slot:
    """Hold what the groups of a payload share, large-scale gain included in the channel.

    h, h_hat: [S, K, A, C] true and estimated, C cells flattened over (B, F); one tensor where the
    estimate is the truth. stops: the channel use after which each cell ends. gain, budget: [S, K].
    symbols: channel uses of the slot. bounds: what limits it. uses: those of each group. mixed:
    symbols are interleaved. each: channel uses of a symbol, in which stops, uses, bounds and
    segments count.
    """

    round: int
    h: Tensor
    h_hat: Tensor
    stops: list[int]
    gain: Tensor
    budget: Tensor
    symbols: int
    bounds: Bounds
    uses: list[Uses]
    mixed: bool
    each: int = 1


@dataclass(frozen=True)
class Symbols:
    """Hold what devices have to send of a group, normalised.

    index: of the group in its payload, which its noise depends on. uses: its channel uses. sent:
    the rows, without the means that were taken off. segments: Q of them. lengths: [Q] channel uses
    of each. means: [n, Q] taken off, None where nothing was. scale: [n] what a row is multiplied
    with before p, K w_k for a mean. row_energy: [n, Q], energy: [S, Q, K] sum of squares of a
    segment before p. power: [S, Q, K] mean symbol power m of the normalised stretch before p.
    """

    slot: Slot
    index: int
    uses: Uses
    sent: Signal
    segments: Segments
    lengths: Tensor
    means: Tensor | None
    scale: Tensor
    row_energy: Tensor
    energy: Tensor
    power: Tensor

    @property
    def variation(self) -> Tensor:
        """Return the squared multivariate coefficient of variation of what is sent over the
        devices, [S, Q]: power about the devices' common mean, over that of the mean (unbiased in K,
        at least 0)."""
        sent, segments, energy = self.sent, self.segments, self.row_energy
        k = sent.cohort.rows_of[:, None]
        total = sent.by_trial(energy)
        both = torch.zeros_like(total)
        coefficient = self.scale[:, None, None].expand(-1, len(segments.bounds), 1)
        for part in segments.parts(sent.x):
            sums = segment_sums(sent, part, coefficient, segments)[:, 0]
            for q, (first, stop) in enumerate(segments.bounds):
                both[:, q] += squared_norm(sums[:, first:stop])
        total, both = segments.by_scope(total), segments.by_scope(both)
        mean = ((both - total) / (k * (k - 1.0)).clamp_min(1.0)).clamp_min(1e-30)
        return (total / k.clamp_min(1.0) / mean - 1.0).clamp_min(0.0)


def normalise(
    slot: Slot, index: int, uses: Uses, sent: Signal, segments: Segments, centre: bool
) -> Symbols:
    """Scale the rows to what devices send before p, and take their powers.

    Parameters
    ----------
    slot, index, uses : of the group.
    sent : its rows [n, P].
    segments : Q segments, of some normalised stretches.
    centre : take the mean of each normalised stretch off, but of rows that know different parts.
    """
    means = stretch_means(sent, segments) if centre and sent.mask is None else None
    if means is not None:
        sent = replace(sent, x=sent.x - segments.at_reals(means, sent.reals))
    scale = sent.scale
    energy = energies(sent, segments) * scale.square()[:, None]
    lengths = constant(segments.lengths, energy.dtype, energy.device)
    power = sent.grid(segments.by_scope(energy) / segments.by_scope(lengths)).mT
    grid = sent.grid(energy).mT
    return Symbols(slot, index, uses, sent, segments, lengths, means, scale, energy, grid, power)


@dataclass(frozen=True)
class ScalarChannels:
    """Hold the channels behind the server's combiner, whose noise is that of one antenna.

    sends: [S, K] bool, who sends. h, h_hat: [S, Q, K] complex, true and believed. noise: [S, Q]
    variance of one received real. combiner: f [S, Q, A], of unit norm.
    """

    sends: Tensor
    h: Tensor
    h_hat: Tensor
    noise: Tensor
    combiner: Tensor


@dataclass(frozen=True)
class OnAir:
    """Hold one group's transmission: p and eta, and what crashing devices have sent, None where
    none do."""

    symbols: Symbols
    channels: ScalarChannels
    coefficients: Coefficients
    part: SentPart | None

    @property
    def segments(self) -> Segments:
        """Return the group's segments."""
        return self.symbols.segments

    @property
    def signal(self) -> Signal:
        """Return the rows as far as they are sent."""
        return self.symbols.sent if self.part is None else self.part.signal

    @property
    def energy(self) -> Tensor:
        """Return the sum of squares of what each device sends before p, [S, Q, K]."""
        symbols = self.symbols
        if self.part is None:
            return symbols.energy
        sent = energies(self.part.signal, self.segments) * symbols.scale.square()[:, None]
        return symbols.sent.grid(sent).mT

    @functools.cached_property
    def sent_gain(self) -> Tensor:
        """Return p / sqrt(eta) [S, Q, K]."""
        return self.coefficients.p / self.coefficients.eta.sqrt()[..., None]

    @functools.cached_property
    def gain(self) -> Tensor:
        """Return h p / sqrt(eta) [S, Q, K] complex, whose real part is c_k."""
        return self.channels.h * self.sent_gain

    @functools.cached_property
    def active_rows(self) -> Tensor:
        """Return 1 for the rows that count in a segment, else 0: [n, Q]."""
        return self.symbols.sent.at_rows(self.coefficients.active.mT).to(self.symbols.scale.dtype)

    @functools.cached_property
    def weight(self) -> Tensor:
        """Return W of who counts, [S, Q]: of who is on air, for all that the server knows."""
        sent = self.symbols.sent
        return sent.by_trial(sent.weight[:, None] * self.active_rows)

    @functools.cached_property
    def unit(self) -> Tensor:
        """Return what the receiver multiplies Re(f^H y) / sqrt(eta) with, [S, Q]: 1 / (K W) for a
        mean, 1 / K where the sum is divided coordinate by coordinate, 1 for a sum."""
        sent, unit = self.symbols.sent, torch.ones_like(self.weight)
        if sent.linear:
            unit = unit / sent.cohort.rows_of.clamp_min(1.0)[:, None]
            if sent.mask is None:
                unit = unit / self.weight.clamp_min(1e-12)
        return unit

    @property
    def row_unit(self) -> Tensor:
        """Return a row's scale before p times what the receiver multiplies with, [n, Q]."""
        return self.symbols.scale[:, None] * self.unit[self.symbols.sent.cohort.trial]

    @property
    def row_gain(self) -> Tensor:
        """Return what a row's symbol is multiplied with on its way to the estimate, [n, Q]
        complex."""
        return self.symbols.sent.at_rows(self.gain.mT) * self.row_unit

    @property
    def variance(self) -> Tensor:
        """Return the noise variance [S, Q] of an estimated real, 0 where nobody is on air."""
        variance = self.channels.noise / self.coefficients.eta * self.unit.square()
        return torch.where(self.weight > 0, variance, 0.0)

    @property
    def received_unit(self) -> Tensor:
        """Return what a received real is multiplied with in the estimate, [S, Q], 0 where nobody is
        on air."""
        unit = self.unit / self.coefficients.eta.sqrt()
        return torch.where(self.weight > 0, unit, 0.0)

    def superposed(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Sum the rows as they arrive and the receiver's noise, reading the signal once.

        Parameters
        ----------
        noise : [S, P] standard normal.

        Returns
        -------
        The estimate [S, P], and the error-free aggregate [S, P] of what was sent.
        """
        signal, segments, spread = self.signal, self.segments, self.variance.sqrt()
        exact = signal.exact[:, None].expand(-1, len(segments.bounds))
        gain = self.row_gain
        columns = [gain.real, exact]
        if segments.halves == 2:
            columns.append(gain.imag)
        together = torch.stack(columns, 2)
        sums = [segment_sums(signal, part, together, segments) for part in segments.parts(signal.x)]
        if len(sums) == 1:
            estimate, target = sums[0][:, 0], sums[0][:, 1]
            for q, (first, stop) in enumerate(segments.bounds):
                estimate[:, first:stop].addcmul_(noise[:, first:stop], spread[:, q, None])
            return estimate, target
        one, two = sums
        width = two.shape[2]  # the second quadrature may be one symbol short
        one[:, 0, :width] -= two[:, 2]
        two[:, 0] += one[:, 2, :width]
        estimate = torch.cat([one[:, 0], two[:, 0]], 1)
        estimate += noise * segments.at_reals(spread, signal.reals)
        return estimate, torch.cat([one[:, 1], two[:, 1]], 1)

    def reached(self) -> Blocks | None:
        """Return the weight on air out of 1 at each real, blocks [S, *shape], of a group that is
        cut in segments; None of another, or of one with a mask."""
        sent, segments = self.symbols.sent, self.segments
        if sent.mask is not None or len(segments.bounds) == 1:
            return None
        return sent.blocks(segments.at_reals(self.weight, sent.reals))

    def heard(self) -> Callable[[], Tensor]:
        """Return a function as in `LinkReport.heard`; it keeps nothing of the payload's size."""
        sent, stop = self.symbols.sent, None if self.part is None else self.part.stop
        active = sent.at_rows(self.coefficients.on_air.mT)
        order = _Columns(sent.reals, sent.place)
        return functools.partial(_heard, sent.cohort, active, self.segments, stop, order)

    def reached_weight(self, mask: Tensor) -> Tensor:
        """Return the weight on air that knows each coordinate, [S, P], by the rows' mask [n, P]."""
        sent, segments = self.symbols.sent, self.segments
        weight = (sent.weight[:, None] * self.active_rows)[..., None]
        parts = [segment_sums(sent, part, weight, segments)[:, 0] for part in segments.parts(mask)]
        return torch.cat(parts, 1)

    def saved(self, gram: bool) -> Blocks:
        """Return what the aggregation error follows from, given the Gram matrices of the signals:
        in a segment it is a^H Gram a of the deviations a_k = g_k w_k / W - w_k, plus the noise's
        part."""
        sent = self.symbols.sent
        values = {
            "h": self.channels.h,
            "h_hat": self.channels.h_hat,
            "p": self.coefficients.p,
            "eta": self.coefficients.eta,
            "c": self.gain.real,
            "active": self.coefficients.active,
            "m": self.symbols.power,
            "noise": self.channels.noise,
            "weight": sent.grid(sent.weight),
        }
        if self.part is not None:
            values["sent"] = self.part.symbols
        if gram:
            values["gram"] = self._gram()
        return {f"{name}/{self.symbols.index}": value for name, value in values.items()}

    def _gram(self) -> Tensor:
        """Return the Gram matrices of the signals of the devices, [S, Q, K, K]."""
        sent, segments = self.symbols.sent, self.segments
        rows, *second = segments.parts(sent.grid(sent.x).flatten(0, 1))
        if second:  # perhaps one symbol short
            missing = rows.shape[1] - second[0].shape[1]
            rows = torch.complex(rows, torch.nn.functional.pad(second[0], (0, missing)))
        rows = rows.unflatten(0, self.gain.shape[::2])
        parts = [rows[..., first:stop] for first, stop in segments.bounds]
        return torch.stack([torch.matmul(part.conj(), part.mT) for part in parts], 1)


class _Columns(NamedTuple):
    """Count the reals of a row, and say in which column each is sent: [P], None in order."""

    reals: int
    place: Tensor | None


def _heard(
    cohort: Cohort, active: Tensor, segments: Segments, stop: Tensor | None, columns: _Columns
) -> Tensor:
    """Return which of its reals each device had on air, [S, K, P] bool; [S, K] where it is all of
    them or none.

    Parameters
    ----------
    cohort : the n rows.
    active : [n, Q] bool, who is on air in a segment.
    stop : [n, 1] channel uses of the group until a row's crash; None where none crash.
    """
    if stop is None and len(segments.bounds) == 1:
        return cohort.grid(active[:, 0], False)
    rows = segments.at_reals(active, columns.reals)
    if stop is not None:
        uses = torch.arange(segments.symbols, device=stop.device).repeat(segments.halves)
        rows = rows & (uses[: columns.reals] < stop)
    if columns.place is not None:
        rows = rows.index_select(1, columns.place)
    return cohort.grid(rows, False)
