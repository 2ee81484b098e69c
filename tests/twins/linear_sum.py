"""Say the distortion of a superposed mean that is linear in what the devices send, as FedRLR+'s
increments are and FedRLR's models are not (`otafl.factorised.rlc`)."""

from __future__ import annotations

import math

from torch import Tensor

GBMA_VARIATION = 4.0 / math.pi - 1.0
"""Var |h| / (E |h|)^2 of Rayleigh fading: how much the devices' shares of a GBMA mean vary."""


def distortion(
    squares: Tensor,
    weight: Tensor,
    reals: int,
    noise: Tensor | float = 0.0,
    variation: float = 0.0,
) -> Tensor:
    """Return E |sum_k g_k w_k x_k + n - sum_k w_k x_k|^2 [S], for any x_k of K devices.

    Relative to the model the error is smaller by |sum_k w_k x_k|^2 / |Theta_0|^2, the square of a
    step's length: the retraction changes that to third order only.

    Parameters
    ----------
    squares : |x_k|^2 [S, K].
    weight : w_k [S, K].
    reals : of n. Of the R (M + N) reals of a layer of FedRLR+, R^2 are noise that no increment can
        be, and are taken off: R (M + N - R) count.
    noise : variance of each of them.
    variation : variance of the independent gains g_k of mean 1: 0 for inversion, `GBMA_VARIATION`
        for GBMA over Rayleigh fading.
    """
    return variation * (weight.square() * squares).sum(-1) + reals * noise
