"""Centring of a payload group, and the variation of its symbols over the devices."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from otafl.uplink.signal import Segments, Signal, compute_squared_norm, sum_segments


def centre(sent: Signal, segments: Segments) -> tuple[Signal, Tensor | None]:
    """Subtract the mean of each normalised stretch, except in rows with a mask.

    Parameters
    ----------
    sent : Signal
        Rows x_k of the group, [n, P].
    segments : Segments
        Q segments, grouped into normalised stretches.

    Returns
    -------
    tuple of Signal and Tensor, float [n, Q]
        The rows without their means, and the means; None if nothing is subtracted.
    """
    if sent.mask is not None:
        return sent, None
    means = compute_means(sent, segments)
    return replace(sent, x=sent.x - segments.expand(means, sent.num_coordinates)), means


def compute_means(sent: Signal, segments: Segments) -> Tensor:
    """Compute the mean of each row's normalised stretch, at each of its segments: [n, Q]."""
    total = sent.x.new_zeros(len(sent.x), len(segments.bounds))
    num_coordinates = total.new_zeros(len(segments.bounds))
    for part in segments.parts(sent.x):
        for q, (first, stop) in enumerate(segments.bounds):
            total[:, q] += part[:, first:stop].sum(1)
            num_coordinates[q] += part[:, first:stop].shape[1]
    return segments.sum_over_scopes(total) / segments.sum_over_scopes(num_coordinates)


def compute_variation(
    sent: Signal, segments: Segments, scale: Tensor, row_energy: Tensor
) -> Tensor:
    """Compute how much symbols vary over the devices.

    Parameters
    ----------
    sent : Signal
        Rows of the group.
    segments : Segments
        Q segments.
    scale : Tensor, float [n]
        Factor of a row before p.
    row_energy : Tensor, float64 [n, Q]
        Sum of squares of a row's scaled symbols in a segment.

    Returns
    -------
    Tensor, float64 [S, Q]
        Squared multivariate coefficient of variation: the power of the deviations from the mean
        over the devices, divided by the power of the mean. The latter is estimated without bias
        in K; the result is at least 0.
    """
    k = sent.cohort.rows_per_trial[:, None]
    total = sent.sum_by_trial(row_energy)
    both = torch.zeros_like(total)
    coefficient = scale[:, None, None].expand(-1, len(segments.bounds), 1)
    for part in segments.parts(sent.x):
        sums = sum_segments(sent, part, coefficient, segments)[:, 0]
        for q, (first, stop) in enumerate(segments.bounds):
            both[:, q] += compute_squared_norm(sums[:, first:stop])
    total, both = segments.sum_over_scopes(total), segments.sum_over_scopes(both)
    mean = (both - total) / (k * (k - 1.0)).clamp_min(1.0)
    mean = mean.maximum(1e-30 * total).clamp_min(torch.finfo(mean.dtype).tiny)
    return (total / k.clamp_min(1.0) / mean - 1.0).clamp_min(0.0)
