"""Combiners in closed form, and the choice among all receivers by the power policy."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.core import registry
from otafl.power.base import PowerPolicy
from otafl.receivers.base import TINY, Receiver, normalise_combiner, select_first_antenna


class Scalar(Receiver):
    """First antenna of the server, without the others."""

    name: Literal["scalar"] = "scalar"

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        return select_first_antenna(h[:, :, 0])


class Mrc(Receiver):
    """Combiner along the sum of channels, for devices without phase knowledge (maximum ratio).

    With f = sum_k h_k / |sum_k h_k|, f^H h_k is real and equal for all devices in the limit of many
    antennas. Blind over-the-air computation uses this combiner.

    References
    ----------
    Amiri, Duman, Gunduz 2021, "Blind Federated Edge Learning".
    """

    turns_phases: ClassVar[bool] = True
    example: ClassVar = {"channel.antennas": 64, "power.name": "blind"}

    name: Literal["mrc"] = "mrc"

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        r"""Compute the normalised sum of the channels, complex [S, Q, A].

        Notes
        -----
        .. math::

            f = \sum_k h_k / \left| \sum_k h_k \right|
        """
        return normalise_combiner((h * transmit_mask[:, None, :, None]).sum(2))


class Eigen(Receiver):
    """Combiner along the first eigenvector of the received covariance, of the most power.

    The covariance is sum_k P_k h_k h_k^H over the transmitters.
    """

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


class Auto(Receiver):
    """Receiver for which the power policy is designed; with one antenna, none is needed.

    With one antenna only the sum of channels has an effect, which blind devices need.
    """

    name: Literal["auto"] = "auto"

    def match_policy(self, policy: PowerPolicy, antennas: int) -> Receiver:
        kind: type[Receiver] = registry.load_component("receiver", policy.receiver)
        if antennas == 1 and not kind.turns_phases:
            kind = Scalar
        return kind(scale=self.scale)

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        raise NotImplementedError("auto has no combiner; call that of match_policy's receiver")
