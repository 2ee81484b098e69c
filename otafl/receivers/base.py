"""Contract of a receiver, which combines all antennas to one before a policy acts."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.settings import Settings
from otafl.power.base import PowerPolicy

TINY = 1e-30
"""Smallest norm of a vector with a direction."""


class Receiver(Settings):
    """Combination of the server's antennas to one, f^H h, with unit norm.

    A receiver is its own settings. `otafl list NAME` prints an example scenario of each
    one.
    """

    turns_phases: ClassVar[bool] = False
    """Whether it changes the phase of the received signal, and so has an effect with one antenna
    too."""

    scale: Literal["policy", "mmse"] = "policy"
    """receive scaling: that of the power policy, or that of smallest mean squared error for its
    transmit scalars (mmse)"""

    def match_policy(self, policy: PowerPolicy, antennas: int) -> Receiver:
        """Return the receiver for a policy and a number of antennas; by default this one."""
        return self

    @abstractmethod
    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        """Compute the combiner f, which makes the scalar channels f^H h_k.

        Parameters
        ----------
        h : Tensor, complex [S, Q, K, A]
            Estimated channels, with large-scale gain.
        transmit_mask : Tensor, bool [S, K]
            Transmitters, for which the combiner is computed.
        budget : Tensor, float [S, K]
            Power budgets P_k.

        Returns
        -------
        Tensor, complex [S, Q, A]
            Combiner f with unit norm.
        """


def select_first_antenna(like: Tensor) -> Tensor:
    """Return the combiner that uses only the first antenna, [..., A]."""
    if like.shape[-1] == 1:
        return torch.ones_like(like)
    combiner = torch.zeros_like(like)
    combiner[..., 0] = 1.0
    return combiner


def normalise_combiner(combiner: Tensor) -> Tensor:
    """Return f / |f|, complex [..., A]; the first antenna if f is zero."""
    norm = torch.linalg.vector_norm(combiner, dim=-1, keepdim=True)
    return torch.where(norm > TINY, combiner / norm.clamp_min(TINY), select_first_antenna(combiner))
