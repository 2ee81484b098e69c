"""The first eigenvector of the received signals' covariance sum_k P_k h_k h_k^H: the combiner that
receives the most power."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.receivers.config import EigenConfig
from otafl.receivers.unit import TINY


class Eigen:
    def __init__(self, config: EigenConfig) -> None:
        self.scale = config.scale

    def combine(self, h: Tensor, sends: Tensor, budget: Tensor) -> Tensor:
        return first_eigenvector(amplitudes(h, sends, budget))


def amplitudes(h: Tensor, sends: Tensor, budget: Tensor) -> Tensor:
    """sqrt(P_k) h_k [S, Q, K, A] of the devices that send, over the strongest one's norm."""
    reach = h * (budget.sqrt() * sends)[:, None, :, None]
    norm = torch.linalg.vector_norm(reach, dim=-1, keepdim=True)
    return reach / norm.amax(2, keepdim=True).clamp_min(TINY)


def first_eigenvector(reach: Tensor) -> Tensor:
    """[..., A] of the covariance of reach [..., K, A]; its first entry is real and not negative."""
    covariance = reach.mT @ reach.conj()
    vector = torch.linalg.eigh(covariance).eigenvectors[..., -1]
    return vector * torch.conj(torch.sgn(vector[..., :1]) + (vector[..., :1] == 0))
