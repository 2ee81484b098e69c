"""Dropout from the random streams of trials.

A minibatch has a key for each row, `Batch.keys`, from a stream of otafl. Masks are functions of the
key and the layer's number in the forward pass. So they are the same alone, in a stack of trials,
in any chunk of the cohort and after a resume.

References
----------
Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting".
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otafl.core.rng import derive_words


def draw_dropout(
    keys: Tensor, layer: int, shape: tuple[int, ...], share: float, dtype: torch.dtype
) -> Tensor:
    r"""Draw the factors of a dropout layer.

    Parameters
    ----------
    keys : Tensor, int64 [n], or []
        Keys of the rows.
    layer : int
        Number of the layer in the forward pass.
    shape : tuple of int
        Shape of a row's factors.
    share : float
        Probability p that an output is set to 0.
    dtype : torch.dtype
        Type of the factors.

    Returns
    -------
    Tensor [n, *shape], or [*shape]
        Factors: 0 with probability p, and 1 / (1 - p) otherwise.

    Notes
    -----
    The factors m are independent, with

    .. math:: \mathrm{E}[m] = 1, \quad \mathrm{E}[m^2] = \frac{1}{1 - p}
    """
    words = derive_words(keys, layer, math.prod(shape)).unflatten(-1, shape)
    bound = min(round(share * 2.0**64) - 2**63, 2**63 - 1)
    return (words >= bound).to(dtype) * (1.0 / (1.0 - share) if share < 1.0 else 0.0)
