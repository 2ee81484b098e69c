"""Combine by the first eigenvector of the received covariance, which receives the most power.

The covariance is sum_k P_k h_k h_k^H of the devices that send.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.receivers.base import TINY, Receiver


class Eigen(Receiver):
    example: ClassVar = {"channel.antennas": 4}

    name: Literal["eigen"] = "eigen"

    def combine(self, h: Tensor, sends: Tensor, budget: Tensor) -> Tensor:
        return first_eigenvector(amplitudes(h, sends, budget))


def amplitudes(h: Tensor, sends: Tensor, budget: Tensor) -> Tensor:
    """Return sqrt(P_k) h_k [S, Q, K, A] of the devices that send, over the strongest one's norm."""
    reach = h * (budget.sqrt() * sends)[:, None, :, None]
    norm = torch.linalg.vector_norm(reach, dim=-1, keepdim=True)
    return reach / norm.amax(2, keepdim=True).clamp_min(TINY)


def first_eigenvector(reach: Tensor) -> Tensor:
    """Return the first eigenvector [..., A] of the covariance of reach [..., K, A]; its first entry
    is real and not negative."""
    covariance = reach.mT @ reach.conj()
    vector = torch.linalg.eigh(covariance).eigenvectors[..., -1]
    return vector * torch.conj(torch.sgn(vector[..., :1]) + (vector[..., :1] == 0))
