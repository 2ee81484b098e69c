"""What the policies share. Shapes: h [S, Q, K] complex, the rest real and broadcastable to it."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.contracts import Link

TINY = 1e-30
"""Symbol power of a device that sends zeros: its scalar is arbitrary, but finite."""


def amplitude_bound(link: Link) -> Tensor:
    """sqrt(P_k / m_k) [S, Q, K], the largest |p_k| within the budget."""
    return (link.budget[:, None] / link.power.clamp_min(TINY)).sqrt()


def cophase(amplitude: Tensor, h: Tensor) -> Tensor:
    """amplitude exp(-j angle h)."""
    return torch.conj(torch.sgn(h)) * amplitude


def reference_power(link: Link, reference: str) -> Tensor:
    """m [S, Q, 1] that a scale common to all devices answers to: the largest m_k relative to its
    budget, or the mean over the devices that send. Given as m_k / P_k, so that the common
    |p|^2 is its inverse."""
    relative = link.power / link.budget[:, None]
    sends = link.sends[:, None]
    if reference == "max":
        return (relative * sends).amax(-1, keepdim=True).clamp_min(TINY)
    count = sends.sum(-1, keepdim=True).clamp_min(1)
    return ((relative * sends).sum(-1, keepdim=True) / count).clamp_min(TINY)
