"""Estimate of a group from signals with carrier offsets, delays within a symbol, or clipped peaks.

Pulses are rectangular, and a delay d_k is less than one symbol. The receiver's filter is matched to
the symbols of the first device on air, so that it gets a part of the previous symbol:

    r(i) = sum_k [(1 - d_k) v_k(i) + d_k v_k(i - 1)] + n(i)

Reference: Shao, Gunduz, Liew 2021, "Federated Edge Learning with Misaligned Over-the-Air
Computation".
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from otafl.core.contracts import Cohort
from otafl.uplink import noise
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.signal import sum_quadratures
from otafl.uplink.transmission import Transmission

CHUNK = 1 << 18
"""Coordinates of a payload that are processed at a time, so that they fit the processor's cache."""


def superpose_distorted(on_air: Transmission, impairments: Impairments) -> Tensor:
    """Compute the estimate of a transmission whose symbols are distorted, with noise.

    Parameters
    ----------
    on_air : Transmission
        Transmission of the rows, [n, P].
    impairments : Impairments
        Carrier offsets, delays and clipping.

    Returns
    -------
    Tensor, float [S, P]
        The estimate.
    """
    sent, slot = on_air.signal, on_air.slot
    carrier, delay = noise.draw_offsets(impairments, slot.budget.shape[1], slot.round)
    on = on_air.row_gain.abs().amax(1) > 0
    delay = from_first(sent.cohort, sent.take_rows(delay), on)
    peak = sent.take_rows((impairments.clip[:, None] * slot.budget).sqrt())
    weight = torch.stack([1.0 - delay, delay], 1)
    if impairments.shifts_carrier or impairments.clips:
        chunks = _iterate_distorted(on_air, peak, sent.take_rows(carrier))
        sums = [[sent.sum(weight, part) for part in parts] for parts in chunks]
        quadratures = [torch.cat(parts, 2) for parts in zip(*sums, strict=True)]
    else:  # symbols are only scaled
        total = sum_quadratures(sent, on_air.row_gain[..., None] * weight[:, None], on_air.segments)
        stops = [on_air.segments.symbols] * (on_air.segments.halves - 1)
        quadratures = list(total.tensor_split(stops, 2))
    flat = []
    for quadrature in quadratures:
        own, late = quadrature.unbind(1)
        flat.append(own + torch.nn.functional.pad(late[:, :-1], (1, 0)))
    added = noise.draw_noise(impairments.streams, sent, slot.round)
    added = added * on_air.expand(on_air.noise_std)
    return torch.cat(flat, 1)[:, : sent.num_coordinates] + added


def _iterate_distorted(
    on_air: Transmission, peak: Tensor, carrier: Tensor
) -> Iterator[list[Tensor]]:
    """Yield one or two quadratures [n, C] as received, without noise, for chunks of channel uses.

    `peak` [n] is the largest magnitude that a row transmits, inf without clipping, and `carrier`
    [n] its carrier frequency offset in cycles per symbol.
    """
    sent, segments, factor = on_air.signal, on_air.segments, on_air.row_gain
    sent_with = sent.take_rows(on_air.scalars.p.abs().mT) * on_air.scale[:, None]
    sent_with = sent_with.to(sent.x.dtype)
    column, halves = segments.index_segments(sent.x.device), segments.parts(sent.x)
    width = max(1, min(segments.symbols, CHUNK // max(1, len(sent.x))))
    step = carrier.double()[:, None]
    turns = _rotation(step * torch.arange(width, device=column.device), factor.dtype)
    for first in range(0, segments.symbols, width):
        stop = min(first + width, segments.symbols)
        q = column[first:stop] if len(segments.bounds) > 1 else slice(None)
        # a second quadrature may be one symbol short
        parts = [half[:, first:stop] for half in halves]
        parts = [torch.nn.functional.pad(p, (0, stop - first - p.shape[1])) for p in parts]
        start = _rotation(step * first, factor.dtype)
        gain = factor[:, q] * start * turns[:, : stop - first]
        # neither hypot nor a quotient with an infinite numerator: their gradients are NaN
        size = (parts[0] if len(parts) == 1 else torch.complex(*parts)).abs()
        over = size * sent_with[:, q] / peak[:, None]
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


def from_first(cohort: Cohort, delay: Tensor, on: Tensor) -> Tensor:
    """Return delays [n] relative to the trial's earliest device on air; 0 for silent devices."""
    earliest = delay.new_full((cohort.num_trials,), math.inf)
    earliest = earliest.scatter_reduce(0, cohort.trial, delay.where(on, math.inf), "amin")
    return torch.where(on, delay - earliest[cohort.trial], 0.0)
