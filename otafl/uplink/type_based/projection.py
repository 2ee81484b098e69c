"""Projection of received counts to feasible ones: integers between 0 and K, whose sum is K."""

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
