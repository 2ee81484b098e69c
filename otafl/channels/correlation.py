"""Correlation over the server's antennas: the exponential model of Loyka, "Channel Capacity of MIMO
Architecture Using the Exponential Correlation Matrix" (IEEE Communications Letters, 2001), R_ab =
r^|a-b|. Over time it is `jakes.py`."""

from __future__ import annotations

import torch
from torch import Tensor


def correlated(h: Tensor, neighbours: float, dim: int) -> Tensor:
    """Independent entries of variance 1 along `dim` to ones of covariance R, r = `neighbours` in
    [0, 1); complex, any shape.

    R is the covariance of a first-order autoregression along the array, whose steps are the rows of
    R's Cholesky factor in closed form: nothing is factorised, which fails silently near r = 1, and
    an antenna's fading does not depend on how many there are.
    """
    if neighbours == 0.0:
        return h
    fresh = (1.0 - neighbours**2) ** 0.5
    first, *others = torch.view_as_real(h.movedim(dim, 0)).unbind(0)
    antennas = [first]
    for other in others:
        antennas.append(neighbours * antennas[-1] + fresh * other)
    return torch.view_as_complex(torch.stack(antennas, dim if dim >= 0 else dim - 1))
