"""Define the contract of a receiver, which makes one antenna of all before a policy acts."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.settings import Settings
from otafl.power.base import PowerPolicy

TINY = 1e-30
"""Least norm of a vector that has a direction."""


class Receiver(Settings):
    """Combine the server's antennas into one, f^H h, of unit norm. A receiver is its settings."""

    turns_phases: ClassVar[bool] = False
    """It turns the phase of what is received, so that it does something with one antenna too."""

    scale: Literal["policy", "mmse"] = "policy"
    """receive scaling: as the power policy sets it, or the one of least mean squared error for its
    transmit scalars"""

    def match_policy(self, policy: PowerPolicy, antennas: int) -> Receiver:
        """Return the receiver of a link with this policy: the one that the section names."""
        return self

    @abstractmethod
    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        """Return the combiner, which makes the scalar channels f^H h_k.

        Parameters
        ----------
        h : [S, Q, K, A] complex, the estimate, large-scale gain included.
        transmit_mask : [S, K] bool, the devices that it is for.
        budget : [S, K], P_k.

        Returns
        -------
        f [S, Q, A] complex, |f| = 1.
        """


def select_first_antenna(like: Tensor) -> Tensor:
    """Return the combiner that listens with the first antenna alone, [..., A]."""
    combiner = torch.zeros_like(like)
    combiner[..., 0] = 1.0
    return combiner


def normalise_combiner(combiner: Tensor) -> Tensor:
    """Return f / |f| of [..., A] complex; where f is zero, the first antenna."""
    norm = torch.linalg.vector_norm(combiner, dim=-1, keepdim=True)
    return torch.where(norm > TINY, combiner / norm.clamp_min(TINY), select_first_antenna(combiner))
