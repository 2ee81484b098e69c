"""Combiner along the first eigenvector of the received covariance, which receives the most power.

The covariance is sum_k P_k h_k h_k^H over the transmitters.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.receivers.base import TINY, Receiver, normalise_combiner


class Eigen(Receiver):
    """Eigenvector combining."""

    example: ClassVar = {"channel.antennas": 4}

    name: Literal["eigen"] = "eigen"

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        r"""Compute the first eigenvector of the received covariance, complex [S, Q, A].

        Notes
        -----
        .. math::

            f = \arg\max_{|f| = 1} f^H \left( \sum_k P_k h_k h_k^H \right) f
        """
        return compute_first_eigenvector(compute_amplitudes(h, transmit_mask, budget))


def compute_amplitudes(h: Tensor, sends: Tensor, budget: Tensor) -> Tensor:
    """Compute sqrt(P_k) h_k of the transmitters, relative to the strongest one's norm.

    Parameters
    ----------
    h : Tensor, complex [S, Q, K, A]
        Estimated channels.
    sends : Tensor, bool [S, K]
        Transmitters.
    budget : Tensor, float [S, K]
        Power budgets P_k.

    Returns
    -------
    Tensor, complex [S, Q, K, A]
        Received amplitudes, 0 for silent devices.
    """
    reach = h * (budget.sqrt() * sends)[:, None, :, None]
    norm = torch.linalg.vector_norm(reach, dim=-1, keepdim=True)
    return reach / norm.amax(2, keepdim=True).clamp_min(TINY)


def compute_first_eigenvector(reach: Tensor) -> Tensor:
    """Compute the first eigenvector of the covariance of received amplitudes.

    If there are fewer devices than antennas, it is computed from the devices' [K, K] products.

    Parameters
    ----------
    reach : Tensor, complex [..., K, A]
        Received amplitudes.

    Returns
    -------
    Tensor, complex [..., A]
        Eigenvector, whose first entry is real and not negative.
    """
    few = reach.shape[-2] < reach.shape[-1]
    products = reach.conj() @ reach.mT if few else reach.mT @ reach.conj()
    vector = torch.linalg.eigh(products).eigenvectors[..., -1]
    if few:
        vector = normalise_combiner((reach.mT @ vector[..., None])[..., 0])
    return vector * torch.conj(torch.sgn(vector[..., :1]) + (vector[..., :1] == 0))
