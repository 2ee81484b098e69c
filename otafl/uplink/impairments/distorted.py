"""Estimate of a group from signals with carrier offsets, delays within a symbol, or clipped peaks.

Pulses are rectangular, and a delay is less than one symbol (Shao, Gunduz, Liew 2021, "Federated
Edge Learning with Misaligned Over-the-Air Computation").
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
from otafl.uplink.impairments.misaligned import SampleSums, compute_aligned_noise, lmmse_filter
from otafl.uplink.signal import sum_quadratures
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
