"""Compute what several policies need.

Shapes: h [S, Q, K] complex, the rest real and broadcastable to it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from otafl.core.contracts import ChannelStatistics, Coefficients, Link

TINY = 1e-30
"""Symbol power of a device that sends zeros: its scalar is arbitrary, but finite."""

FADED_SNR = 1e-20
"""Least |h| that an inversion divides by."""

MIN_REACH = 1e-15
"""Least sqrt(eta): where nobody has a channel, nothing must be divided by zero."""

MAX_SCALE = 1e18
"""Largest transmit and receive scalars; their squares are finite in single precision."""


def get_transmitter_mask(link: Link) -> Tensor:
    """Return who sends, segment by segment, [S, Q, K] bool."""
    return link.eligible_mask


def compute_amplitude_bound(link: Link) -> Tensor:
    """Return sqrt(P_k / m_k) [S, Q, K], the largest |p_k| within the budget."""
    bound = link.budget.sqrt()[:, None] / link.symbol_power.clamp_min(TINY).sqrt()
    return bound.clamp_max(MAX_SCALE)


def cophase(amplitude: Tensor, h: Tensor) -> Tensor:
    """Return amplitude exp(-j angle h)."""
    return torch.conj(torch.sgn(h)) * amplitude


def invert_channel(root_eta: Tensor, link: Link) -> Tensor:
    """Return |p_k| [S, Q, K] that makes every device that sends arrive with gain one; root_eta
    [S, Q, 1]."""
    amplitude = (root_eta / link.h.abs().clamp_min(FADED_SNR)).clamp_max(MAX_SCALE)
    return torch.where(get_transmitter_mask(link), amplitude, 0.0)


def align_phases(link: Link, amplitude: Tensor, root_eta: Tensor, active: Tensor) -> Coefficients:
    """Return the scalars of devices that send with amplitudes |p_k| [S, Q, K] and arrive in phase;
    root_eta [S, Q, 1]."""
    return Coefficients(cophase(amplitude, link.h), root_eta[..., 0].square(), active)


def align_with_mmse_scaling(link: Link, amplitude: Tensor, active: Tensor) -> Coefficients:
    """Return the scalars of devices that arrive in phase, with the receive scaling of least mean
    squared error for their amplitudes |p_k| [S, Q, K]."""
    root_eta, _ = compute_mmse_root_eta(link, amplitude * link.h.abs())
    return align_phases(link, amplitude, root_eta.clamp_max(MAX_SCALE), active)


def apply_mmse_scaling(coefficients: Coefficients, link: Link) -> Coefficients:
    """Return the same transmit scalars with the receive scaling of least mean squared error; where
    nothing useful is received, with the policy's own."""
    root_eta, signal = compute_mmse_root_eta(link, (link.h * coefficients.p).real)
    eta = torch.where(signal > 0, root_eta.square(), coefficients.eta[..., None])
    return replace(coefficients, eta=eta[..., 0])


def compute_mmse_root_eta(link: Link, arrives: Tensor) -> tuple[Tensor, Tensor]:
    """Return sqrt(eta) = (N + sum m a^2) / sum m a, and the signal sum m a, [S, Q, 1] each.

    It minimises sum m (c - 1)^2 + N / eta, the mean squared error of uncorrelated symbols, for the
    amplitudes a = Re(h p) [S, Q, K] that arrive.
    """
    signal = (link.symbol_power * arrives).sum(-1, keepdim=True)
    energy = (link.symbol_power * arrives.square()).sum(-1, keepdim=True)
    return (link.noise_variance[:, None, None] + energy) / signal.clamp_min(TINY), signal


def compute_threshold(reach: Tensor, power: Tensor, noise: Tensor, there: Tensor) -> Tensor:
    """Return min_i sqrt(eta_i) [..., 1] of the static optimum (see `cao_static`) over the devices
    that are there [..., K], of reach sqrt(q) and symbol powers m [..., K] and N [..., 1]."""
    order = torch.where(there, reach, math.inf).argsort(-1)  # others last
    sorted_reach, there = reach.gather(-1, order), there.gather(-1, order)
    m = torch.where(there, power.gather(-1, order), 0.0)
    energy = noise + (m * sorted_reach.square()).cumsum(-1)
    root = energy / (m * sorted_reach).cumsum(-1).clamp_min(TINY)
    return torch.where(there, root, MAX_SCALE).amin(-1, keepdim=True).clamp_max(MAX_SCALE)


def compute_reference_gain(statistics: ChannelStatistics, relative: bool) -> Tensor:
    """Return the mean large-scale gain that thresholds are over, or 1, [S]."""
    if relative:
        return statistics.gain.mean(1)
    return torch.ones_like(statistics.gain[:, 0])


def compute_reference_power(link: Link, reference: str) -> Tensor:
    """Return m_k / P_k [S, Q, 1] that a scale common to all devices answers to; the common |p|^2 is
    its inverse."""
    return reduce_over_devices(link.symbol_power / link.budget[:, None], link, reference)


def reduce_over_devices(cost: Tensor, link: Link, reference: str) -> Tensor:
    """Return the largest cost [S, Q, K] of the devices that send ("max"), or the mean over them
    ("mean"), [S, Q, 1]."""
    sends = get_transmitter_mask(link)
    if reference == "max":
        return (cost * sends).amax(-1, keepdim=True).clamp_min(TINY)
    count = sends.sum(-1, keepdim=True).clamp_min(1)
    return ((cost * sends).sum(-1, keepdim=True) / count).clamp_min(TINY)


def compute_fixed_power(link: Link, gamma: float) -> Tensor:
    """Return |p|^2 [S, 1, 1] that sends what devices of equal weight have to send at power gamma.

    Each factor of a product carries sqrt(w_k), which the number of senders makes up for.
    """
    count = link.transmit_mask.sum(1)[:, None, None].clamp_min(1).to(link.symbol_power)
    return torch.full_like(count, gamma) if link.is_linear else gamma * count


def get_segment_lengths(link: Link) -> tuple[Tensor, float]:
    """Return the symbols of each segment, [Q] float64, and of the slot; each segment has one where
    the link does not say."""
    if link.segment_lengths is None:
        count = link.h.shape[1]
        return torch.ones(count, dtype=torch.float64, device=link.h.device), float(count)
    lengths = link.segment_lengths.double()
    return lengths, float(link.num_symbols) if link.num_symbols else float(lengths.sum())
