"""Estimate of a group from signals with carrier offsets, delays within a symbol, or clipped peaks.

Pulses are rectangular, and a delay is less than one symbol. With delays sorted as
d_1 = 0 <= .. <= d_J < 1, a symbol period has J stretches between the symbol edges of consecutive
devices, of length l_j = d_{j+1} - d_j with d_{J+1} = 1. A whitened matched
filter gives one sample for each stretch:

    r_j(i) = sqrt(l_j) [ sum_{k <= j} v_k(i) + sum_{k > j} v_k(i - 1) ] + n_j(i)

The noise n_j has the variance N of a whole symbol. Only the last sample contains all symbols of the
same number (aligned sample). Divided by sqrt(l_J), it is their sum with noise N / l_J.

Reference: Shao, Gunduz, Liew 2021, "Federated Edge Learning with Misaligned Over-the-Air
Computation".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.core.contracts import Cohort
from otafl.uplink import noise
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.signal import Signal, sum_quadratures
from otafl.uplink.transmission import Transmission

CHUNK = 1 << 18
"""Coordinates of a payload that are processed at a time, so that they fit the processor's cache."""


@dataclass(frozen=True)
class Bend:
    """Distortion of the rows of a transmission.

    Parameters
    ----------
    gain : Tensor, complex [n, Q]
        Factor of a row's symbol in the estimate.
    peak : Tensor, float [n]
        Largest magnitude that is transmitted; inf without clipping.
    carrier : Tensor, float [n]
        Carrier frequency offset in cycles per symbol.
    delay : Tensor, float [n]
        Delay in symbols after the first device on air.
    """

    gain: Tensor
    peak: Tensor
    carrier: Tensor
    delay: Tensor


def superpose_distorted(on_air: Transmission, impairments: Impairments) -> Tensor:
    """Compute the estimate of a transmission whose symbols are distorted, with noise.

    Parameters
    ----------
    on_air : Transmission
        Transmission of the rows, [n, P].
    impairments : Impairments
        Offsets, clipping, and the receiver of misaligned symbols.

    Returns
    -------
    Tensor, float [S, P]
        The estimate.
    """
    sent, gain = on_air.signal, on_air.row_gain
    slot = on_air.slot
    rule = impairments.settings.timing_receiver if impairments.delays else "matched_filter"
    carrier, delay = noise.draw_offsets(impairments, slot.budget.shape[1], slot.round)
    on = gain.abs().amax(1) > 0
    delay = from_first(sent.cohort, sent.take_rows(delay), on)
    peak = sent.take_rows((impairments.clip[:, None] * slot.budget).sqrt())
    bend = Bend(gain, peak, sent.take_rows(carrier), delay)
    if rule == "lmmse":
        return _lmmse(on_air, bend, impairments)
    spread = on_air.noise_std
    if rule == "aligned_sample":
        spread = spread * compute_aligned_noise(sent, delay, on).sqrt()[:, None]
        delay = torch.zeros_like(delay)
    flat = []
    reshapes = impairments.shifts_carrier or impairments.clips
    for part in _sums(on_air, bend, torch.stack([1.0 - delay, delay], 1), reshapes):
        late = torch.nn.functional.pad(part[:, 1, :-1], (1, 0))  # part of the previous symbol
        flat.append(part[:, 0] + late)
    given = impairments.streams, sent.index, slot.round, sent.num_coordinates
    added = noise.draw_noise(*given) * on_air.expand(spread)
    return torch.cat(flat, 1)[:, : sent.num_coordinates] + added


def _sums(on_air: Transmission, bend: Bend, weight: Tensor, reshapes: bool) -> list[Tensor]:
    """Sum the rows v_k as received, with weights [n, J]: [S, J, symbols] per quadrature.

    `reshapes` says whether symbols are rotated or clipped individually, not only scaled.
    """
    sent, segments = on_air.signal, on_air.segments
    if reshapes:
        chunks = _iterate_distorted(on_air, bend, CHUNK)
        sums = [[sent.sum(weight, part) for part in parts] for parts in chunks]
        return [torch.cat(parts, 2) for parts in zip(*sums, strict=True)]
    scaled = bend.gain[..., None] * weight[:, None]
    total = sum_quadratures(sent, scaled, segments)
    return [total] if segments.halves == 1 else list(total.tensor_split([segments.symbols], 2))


def _iterate_distorted(on_air: Transmission, bend: Bend, numbers: int) -> Iterator[list[Tensor]]:
    """Yield one or two quadratures [n, C] as received, without noise, for chunks of channel uses.

    A chunk has about `numbers` real numbers.
    """
    sent, segments = on_air.signal, on_air.segments
    sent_with = sent.take_rows(on_air.scalars.p.abs().mT) * on_air.scale[:, None]
    sent_with = sent_with.to(sent.x.dtype)
    column, halves = segments.index_segments(sent.x.device), segments.parts(sent.x)
    width = max(1, min(segments.symbols, numbers // max(1, len(sent.x))))
    step = bend.carrier.double()[:, None]
    turns = _rotation(step * torch.arange(width, device=column.device), bend.gain.dtype)
    for first in range(0, segments.symbols, width):
        stop = min(first + width, segments.symbols)
        q = column[first:stop] if len(segments.bounds) > 1 else slice(None)
        parts = [_pad(half[:, first:stop], stop - first) for half in halves]
        start = _rotation(step * first, bend.gain.dtype)
        gain = bend.gain[:, q] * start * turns[:, : stop - first]
        # neither hypot nor a quotient with an infinite numerator: their gradients are NaN
        size = (parts[0] if len(parts) == 1 else torch.complex(*parts)).abs()
        over = size * sent_with[:, q] / bend.peak[:, None]
        parts = [part / over.clamp_min(1.0) for part in parts]
        if len(parts) == 1:
            yield [gain.real * parts[0]]
        else:
            yield [
                gain.real * parts[0] - gain.imag * parts[1],
                gain.real * parts[1] + gain.imag * parts[0],
            ]


def _rotation(turns: Tensor, dtype: torch.dtype) -> Tensor:
    """Return exp(2 pi j turns), given turns in double precision."""
    angle = turns.frac() * (2.0 * math.pi)
    return torch.polar(torch.ones_like(angle), angle).to(dtype)


def _lmmse(on_air: Transmission, bend: Bend, impairments: Impairments) -> Tensor:
    """Return the linear MMSE estimate [S, P] from all samples of each symbol.

    A trial has as many samples of a symbol as devices.
    """
    sent, segments, unit = on_air.signal, on_air.segments, on_air.row_unit
    column, streams = segments.index_segments(sent.x.device), impairments.streams
    halves = next(_iterate_distorted(on_air, bend, sent.x.numel()))
    samples = SampleSums(sent.cohort, bend.delay)
    gain = on_air.h_hat * (on_air.scalars.p / on_air.scalars.eta.sqrt()[..., None])
    believed = sent.take_rows(gain.mT).real * unit
    squared = on_air.scale.square().clamp_min(1e-30)
    power = sent.take_rows(on_air.power.mT) / squared[:, None]
    target = unit * on_air.active_rows / torch.where(believed == 0, math.inf, believed)
    power = believed.square() * power / segments.halves
    taps = lmmse_filter(samples, power, target, on_air.variance)
    taps, spread = taps.to(unit.dtype), on_air.noise_std[:, column]
    flat = []
    for half, rows in enumerate(halves):
        observed = samples.sample(rows)  # [S, J, symbols]
        for j in range(observed.shape[1]):
            place = on_air.slot.round, half, j, segments.symbols
            draw = noise.draw_stretch_noise(streams, sent.index, *place)
            observed[:, j].addcmul_(draw, spread)
        flat.append(samples.estimate(observed, taps, column))
    return torch.cat(flat, 1)[:, : sent.num_coordinates]


def from_first(cohort: Cohort, delay: Tensor, on: Tensor) -> Tensor:
    """Return delays [n] relative to the trial's earliest device on air; 0 for silent devices."""
    earliest = delay.new_full((cohort.num_trials,), math.inf)
    earliest = earliest.scatter_reduce(0, cohort.trial, delay.where(on, math.inf), "amin")
    return torch.where(on, delay - earliest[cohort.trial], 0.0)


def _pad(rows: Tensor, columns: int) -> Tensor:
    """Pad a second quadrature, which may be one symbol short."""
    return torch.nn.functional.pad(rows, (0, columns - rows.shape[1]))


WINDOW = 2
"""Periods before and after a symbol that its estimate uses; others contribute next to nothing."""


def compute_aligned_noise(sent: Signal, delay: Tensor, on: Tensor) -> Tensor:
    """Compute the noise variance of the aligned sample relative to N, 1 / (1 - largest delay).

    Parameters
    ----------
    sent : Signal
        The n rows.
    delay : Tensor, float [n]
        Delays after the first device, in symbols.
    on : Tensor, bool [n]
        Rows on air.

    Returns
    -------
    Tensor, float [S]
        The ratio.
    """
    latest = delay.new_zeros(sent.cohort.num_trials)
    latest = latest.scatter_reduce(0, sent.cohort.trial, delay * on, "amax")
    return 1.0 / (1.0 - latest)


class SampleSums:
    """Samples of a cohort's rows with delays [n].

    Trials with fewer rows than J, the largest number, are padded with silent rows of delay 0, whose
    stretches have no length.
    """

    def __init__(self, cohort: Cohort, delay: Tensor) -> None:
        self.trials = cohort.num_trials
        self.most = max(1, *cohort.counts)
        rows_before = cohort.rows_per_trial.long().cumsum(0) - cohort.rows_per_trial.long()
        slot = torch.arange(cohort.num_rows, device=delay.device) - rows_before[cohort.trial]
        table = delay.new_zeros(self.trials, self.most)
        table[cohort.trial, slot] = delay
        ordered, order = table.sort(dim=1, stable=True)
        rank = order.argsort(1)[cohort.trial, slot]
        self._place = cohort.trial * self.most + rank
        ends = torch.cat([ordered[:, 1:], torch.ones_like(ordered[:, :1])], 1)
        self.root_length = (ends - ordered).sqrt()  # [S, J]

    def grid(self, values: Tensor) -> Tensor:
        """Return values [n, ...] of the rows as [S, J, ...], in the order of their delays."""
        table = values.new_zeros(self.trials * self.most, *values.shape[1:])
        table.index_copy_(0, self._place, values)
        return table.view(self.trials, self.most, *values.shape[1:])

    def sample(self, rows: Tensor) -> Tensor:
        """Compute the samples [S, J, L] of rows v [n, L], without noise."""
        known = self.grid(rows).cumsum(1)  # sum over k <= j
        rest = known[:, -1:] - known
        rest = torch.nn.functional.pad(rest[..., :-1], (1, 0))
        return self.root_length[..., None] * (known + rest)

    def estimate(self, observed: Tensor, taps: Tensor, column: Tensor) -> Tensor:
        """Filter samples [S, J, L] with the taps [S, Q, 2 W + 1, J] of each column's segment.

        Parameters
        ----------
        observed : Tensor, float [S, J, L]
            Samples with noise.
        taps : Tensor, float [S, Q, 2 W + 1, J]
            Taps of `lmmse_filter`.
        column : Tensor, int64 [L]
            Segment of each column.

        Returns
        -------
        Tensor, float [S, L]
            The estimate.
        """
        out = torch.zeros_like(observed[:, 0])
        length = observed.shape[2]
        for lag in range(-WINDOW, WINDOW + 1):
            first, stop = max(0, -lag), min(length, length - lag)
            if first < stop:
                tap = taps[:, column[first:stop], lag + WINDOW].mT  # [S, J, L']
                seen = observed[:, :, first + lag : stop + lag]
                out[:, first:stop] += (tap * seen).sum(1)
        return out


def lmmse_filter(samples: SampleSums, power: Tensor, weight: Tensor, noise: Tensor) -> Tensor:
    """Compute the taps of the linear MMSE estimate of sum_k weight_k v_k(i).

    It uses the samples of the periods i - W .. i + W.

    Parameters
    ----------
    samples : SampleSums
        Samples of n rows, J in a symbol period.
    power : Tensor, float [n, Q]
        Variance of v_k, independent over devices and symbols.
    weight : Tensor, float [n, Q]
        Weights of the sum.
    noise : Tensor, float [S, Q]
        Variance N of a whole symbol's sample.

    Returns
    -------
    Tensor, float [S, Q, 2 W + 1, J]
        The taps.
    """
    power, weight = samples.grid(power).mT, samples.grid(weight).mT  # [S, Q, J]
    root = samples.root_length[:, None]
    prefix = power.cumsum(-1)
    total = prefix[..., -1:, None]
    column, row = prefix[..., :, None], prefix[..., None, :]
    least, most = torch.minimum(column, row), torch.maximum(column, row)
    scale = root[..., :, None] * root[..., None, :]
    same = scale * (least + total - most)  # r(i) with r(i)
    before = scale * (row - column).clamp_min(0.0)  # r_j(i) with r_j'(i - 1): k > j and k <= j'
    trials, segments, count = power.shape
    lags = 2 * WINDOW + 1
    covariance = power.new_zeros(trials, segments, lags, count, lags, count)
    for lag in range(lags):
        covariance[:, :, lag, :, lag] = same
        if lag:
            covariance[:, :, lag, :, lag - 1] = before
            covariance[:, :, lag - 1, :, lag] = before.mT
    covariance = covariance.flatten(4).flatten(2, 3)
    known = (weight * power).cumsum(-1)
    cross = power.new_zeros(trials, segments, lags, count)
    cross[:, :, WINDOW] = root * known
    cross[:, :, WINDOW + 1] = root * (known[..., -1:] - known)
    eye = torch.eye(lags * count, dtype=power.dtype, device=power.device)
    taps = torch.linalg.solve(
        covariance + noise[..., None, None] * eye, cross.flatten(2)[..., None]
    )
    return taps.view(trials, segments, lags, count)
