"""Feasible counts of the devices at each level, their median and their trimmed mean."""

from __future__ import annotations

import torch
from torch import Tensor


def project(y: Tensor, senders: Tensor, how: str) -> Tensor:
    """Project received counts to feasible ones.

    Parameters
    ----------
    y : Tensor, float [S, M, C]
        Received counts.
    senders : Tensor, float [S, C]
        Number of devices, K.
    how : {"none", "round", "lattice"}
        Projection.

    Returns
    -------
    Tensor, float [S, M, C]
        The counts that the server uses.
    """
    if how == "none":
        return y
    most = senders[:, None]
    return y.round().clamp_min(0.0).minimum(most) if how == "round" else find_nearest_type(y, most)


def find_nearest_type(y: Tensor, total: Tensor) -> Tensor:
    """Return the nearest non-negative integers to y whose sum over the levels is `total`.

    Parameters
    ----------
    y : Tensor, float [S, M, C]
        Received counts.
    total : Tensor, float [S, 1, C]
        Number of devices, K.

    Returns
    -------
    Tensor, float [S, M, C]
        Integer counts.

    Notes
    -----
    A common shift moves y to the nearest point of the simplex with that sum, which is then rounded.
    Missing or surplus units are added or removed, one at each level, where they cost least: the
    second unit of a level never costs less than the first of another.
    """
    count = y.shape[1]
    ordered = y.sort(1, descending=True).values
    ranks = torch.arange(1, count + 1, dtype=y.dtype, device=y.device)[:, None]
    shift = (ordered.cumsum(1) - total) / ranks
    kept = (ordered > shift).sum(1, keepdim=True).clamp_min(1)
    near = (y - shift.gather(1, kept - 1)).round().clamp_min(0.0)
    missing = total - near.sum(1, keepdim=True)
    up = _rank(near - y) < missing
    down = _rank(torch.where(near > 0, y - near, torch.inf)) < -missing
    return near + up.to(y.dtype) - down.to(y.dtype)


def _rank(cost: Tensor) -> Tensor:
    """Return the ranks [S, M, C] of costs, 0 for the lowest."""
    return cost.argsort(dim=1, stable=True).argsort(dim=1)


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
