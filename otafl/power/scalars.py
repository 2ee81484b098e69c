"""What the policies share. Shapes: h [S, Q, K] complex, the rest real and broadcastable to it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otafl.core.contracts import Link, Statistics

TINY = 1e-30
"""Symbol power of a device that sends zeros: its scalar is arbitrary, but finite."""

FADED = 1e-20
"""Least |h| that an inversion divides by."""

LARGEST = 1e18
"""Largest transmit and receive scalars; their squares are finite in single precision."""


def amplitude_bound(link: Link) -> Tensor:
    """sqrt(P_k / m_k) [S, Q, K], the largest |p_k| within the budget."""
    bound = link.budget.sqrt()[:, None] / link.power.clamp_min(TINY).sqrt()
    return bound.clamp_max(LARGEST)


def cophase(amplitude: Tensor, h: Tensor) -> Tensor:
    """amplitude exp(-j angle h)."""
    return torch.conj(torch.sgn(h)) * amplitude


def inversion(root_eta: Tensor, link: Link) -> Tensor:
    """|p_k| [S, Q, K] that makes every device that sends arrive with gain one; root_eta [S, Q,
    1]."""
    amplitude = (root_eta / link.h.abs().clamp_min(FADED)).clamp_max(LARGEST)
    return torch.where(link.sends[:, None], amplitude, 0.0)


def senders(link: Link) -> Tensor:
    """[S, Q, K] bool: who sends, segment by segment."""
    return link.sends[:, None].expand(link.h.shape)


def mmse_root(link: Link, arrives: Tensor) -> Tensor:
    """sqrt(eta) [S, Q, 1] of least mean squared error, sum m (c - 1)^2 + N / eta of uncorrelated
    symbols, for the amplitudes Re(h p) [S, Q, K] that arrive: (N + sum m a^2) / sum m a."""
    signal = (link.power * arrives).sum(-1, keepdim=True)
    energy = (link.power * arrives.square()).sum(-1, keepdim=True)
    root = (link.noise[:, None, None] + energy) / signal.clamp_min(TINY)
    return root.clamp_max(LARGEST)


def threshold(reach: Tensor, power: Tensor, noise: Tensor, there: Tensor) -> Tensor:
    """min_i sqrt(eta_i) [..., 1] of the static optimum (see `cao_static`) over the devices that are
    there [..., K], of reach sqrt(q) and symbol powers m [..., K] and N [..., 1]."""
    order = torch.where(there, reach, math.inf).argsort(-1)  # others last
    sorted_reach, there = reach.gather(-1, order), there.gather(-1, order)
    m = torch.where(there, power.gather(-1, order), 0.0)
    energy = noise + (m * sorted_reach.square()).cumsum(-1)
    root = energy / (m * sorted_reach).cumsum(-1).clamp_min(TINY)
    return torch.where(there, root, LARGEST).amin(-1, keepdim=True).clamp_max(LARGEST)


def reference_gain(statistics: Statistics, relative: bool) -> Tensor:
    """[S]: the mean large-scale gain that thresholds are over, or 1."""
    if relative:
        return statistics.gain.mean(1)
    return torch.ones_like(statistics.gain[:, 0])


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


def fixed_power(link: Link, gamma: float) -> Tensor:
    """|p|^2 [S, 1, 1] that sends what devices of equal weight have to send at power gamma. Each
    factor of a product carries sqrt(w_k), which the number of senders makes up for."""
    count = link.sends.sum(1)[:, None, None].clamp_min(1).to(link.power)
    return torch.full_like(count, gamma) if link.linear else gamma * count
