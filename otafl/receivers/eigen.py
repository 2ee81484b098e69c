"""Combine by the first eigenvector of the received covariance, which receives the most power.

The covariance is sum_k P_k h_k h_k^H of the devices that send.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.receivers.base import TINY, Receiver, normalise_combiner


class Eigen(Receiver):
    example: ClassVar = {"channel.antennas": 4}

    name: Literal["eigen"] = "eigen"

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        return compute_first_eigenvector(compute_amplitudes(h, transmit_mask, budget))


def compute_amplitudes(h: Tensor, sends: Tensor, budget: Tensor) -> Tensor:
    """Return sqrt(P_k) h_k [S, Q, K, A] of the devices that send, over the strongest one's norm."""
    reach = h * (budget.sqrt() * sends)[:, None, :, None]
    norm = torch.linalg.vector_norm(reach, dim=-1, keepdim=True)
    return reach / norm.amax(2, keepdim=True).clamp_min(TINY)


def compute_first_eigenvector(reach: Tensor) -> Tensor:
    """Return the first eigenvector [..., A] of the covariance of reach [..., K, A]; its first entry
    is real and not negative.

    Where the devices are fewer than the antennas, it is worked out from their [K, K] products.
    """
    few = reach.shape[-2] < reach.shape[-1]
    products = reach.conj() @ reach.mT if few else reach.mT @ reach.conj()
    vector = torch.linalg.eigh(products).eigenvectors[..., -1]
    if few:
        vector = normalise_combiner((reach.mT @ vector[..., None])[..., 0])
    return vector * torch.conj(torch.sgn(vector[..., :1]) + (vector[..., :1] == 0))
