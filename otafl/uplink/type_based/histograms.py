"""Statistics of histograms: the median and the trimmed mean of values that are given as counts."""

from __future__ import annotations

import torch
from torch import Tensor

CLOSE = 1e-3
"""Counts that differ by less are equal."""


def compute_median(counts: Tensor, values: Tensor) -> Tensor:
    """Compute the median of values v_m that occur n_m times.

    Between two values it is their mean. Negative counts, which noise makes, are taken for 0.

    Parameters
    ----------
    counts : Tensor, float [S, M, C]
        Counts n_m, of C histograms a trial.
    values : Tensor, float [M]
        Values v_m, rising.

    Returns
    -------
    Tensor, float [S, C]
        The median.
    """
    cumulative = counts.clamp_min(0.0).cumsum(1)
    half = 0.5 * cumulative[:, -1:]
    last = len(values) - 1
    lower = (cumulative < half - CLOSE).sum(1).clamp_max(last)
    upper = (cumulative <= half + CLOSE).sum(1).clamp_max(last)
    return 0.5 * values[lower] + 0.5 * values[upper.maximum(lower)]


def compute_trimmed_mean(counts: Tensor, values: Tensor, trimmed: Tensor) -> Tensor:
    """Compute the mean of values without the t smallest and the t largest.

    Parameters
    ----------
    counts : Tensor, float [S, M, C]
        Counts n_m of the values, of C histograms a trial. Negative ones are taken for 0.
    values : Tensor, float [M]
        Values v_m, rising.
    trimmed : Tensor, float [S, C]
        Number t of values that are left out at each end.

    Returns
    -------
    Tensor, float [S, C]
        The trimmed mean, 0 where no value is left.
    """
    cumulative = counts.clamp_min(0.0).cumsum(1)
    first = trimmed[:, None]
    last = cumulative[:, -1:] - first
    ends = cumulative.minimum(last).maximum(first)
    starts = torch.cat([first, ends[:, :-1]], 1)
    kept = ends - starts
    return (values[:, None] * kept).sum(1) / kept.sum(1).clamp_min(CLOSE)
