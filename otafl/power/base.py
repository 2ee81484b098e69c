"""Contract of a power policy, which sets transmit scalars and receive scaling, and its formulas.

Symbols: P_k is the budget on |p_k|^2 m_k, m_k the mean symbol power of device k's payload, h_k its
channel with large-scale gain, g_k = |h_k|^2, N the noise variance of one received real number,
q_k = P_k g_k / m_k, eta the receive scaling, and c_k = Re(h_k p_k) / sqrt(eta) the effective gain.
Channels h are complex [S, Q, K]; other tensors are real and broadcast with them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import ChannelStatistics, Coefficients, Hyper, Link
from otafl.core.settings import Settings

Constraint = Literal["peak", "average", "sum", "none"]
Reference = Literal["max", "mean"]
Pair = tuple[Tensor, Tensor]
"""State of a policy that is two tensors."""

REFERENCE = (
    "symbol power that determines the common scale: the largest of all devices, so that each is "
    "within its budget, or the mean over devices (FedRLR's oracle scaling)"
)
RELATIVE = (
    "whether the threshold is relative to the mean large-scale gain of the trial's devices, so "
    "that it has the same effect with and without a path loss; if false, it is absolute"
)
GAMMA = (
    "gamma, with which |p|^2 = gamma (tci: gamma / |h|^2) for devices of equal weight at any "
    "budget, as in FedRLR's figures with gamma = 1; the resulting power is recorded. By default "
    "the budget determines the power"
)


class PowerPolicy(Settings):
    r"""Rule that sets the transmit and receive scalars of trials and segments.

    A policy is its own settings. `otafl list NAME` prints an example scenario of each
    built-in policy.

    Notes
    -----
    For uncorrelated symbols, the mean squared error of the mean over K devices is

    .. math::

        \frac{1}{K^2} \left( \sum_k m_k (c_k - 1)^2 + \frac{N}{\eta} \right)
    """

    receiver: ClassVar[str] = "eigen"
    """Receiver for which the policy is designed, if the server has several antennas."""

    may_be_silent: ClassVar[bool] = False
    """Whether all devices of a trial can be silent in a round."""

    example_without_noise: ClassVar[Mapping[str, Any]] = {}
    """Own fields with which noise 200 dB below the power budget has no effect on the error."""

    alone: ClassVar[bool] = False
    """Whether a device's transmit scalar depends on no other device."""

    plans_slots: ClassVar[bool] = False
    """It counts the slots that all devices share, and does not go with groups in slots of their
    own."""

    is_adaptive: ClassVar[bool] = True
    """Whether devices reduce their power if a round's power budget is below the planned one.

    Otherwise such a round can silence all devices.
    """

    @property
    def power_constraint(self) -> Constraint:
        """Kind of the power constraint |p|^2 m <= budget.

        It holds in every round ("peak"), over fading and devices ("average"), in every round for
        the sum over the participants ("sum"), or not at all ("none": ideal gains).
        """
        return "peak"

    @property
    def is_inversion(self) -> bool:
        """Whether all devices on air arrive with effective gain one, by their channel estimates."""
        return False

    @property
    def needs_variation(self) -> bool:
        """Whether the link must report the variation of symbols over the devices."""
        return False

    @property
    def needs_segment_power(self) -> bool:
        """Whether the link must report the mean symbol power of each segment."""
        return False

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> Any:
        """Compute the long-term state, such as budgets and multipliers.

        Parameters
        ----------
        statistics : ChannelStatistics
            Statistics of the channel after the receiver's combining.
        hyper : Hyper
            Stackable fields of the policy, [S] each.

        Returns
        -------
        Any
            State for the first call of `compute_coefficients`.
        """
        return None

    def get_least_gain(self, state: Any) -> Tensor | None:
        """Return the smallest |h_hat|^2 [S] of a transmitter, with large-scale gain.

        None if the policy has no fixed threshold.
        """
        return None

    @abstractmethod
    def compute_coefficients(self, state: Any, link: Link) -> tuple[Any, Coefficients]:
        """Compute the scalars of a group of segments.

        Parameters
        ----------
        state : Any
            Result of `prepare`, or state of the last call.
        link : Link
            Estimated channels [S, Q, K], budgets, powers and noise.

        Returns
        -------
        tuple of Any and Coefficients
            New state, and transmit scalars p [S, Q, K] with receive scaling eta [S, Q].
        """


TINY = 1e-100
"""Smallest symbol power and sqrt(eta), far below those of any update in single precision.

Policies compute in double precision, because symbol powers have it.
"""

ZERO_SHARE = 1e-60
"""Smallest symbol power over the largest, so that effective gains fit in single precision."""

FADED_SNR = 1e-20
"""Smallest |h| that an inversion divides by."""


def compute_amplitude_bound(link: Link) -> Tensor:
    """Compute sqrt(P_k / m_k) [S, Q, K], the largest |p_k| within the budget."""
    m = link.symbol_power
    least = ZERO_SHARE * m.amax(-1, keepdim=True)
    return link.budget.sqrt()[:, None] / m.maximum(least).clamp_min(TINY).sqrt()


def cophase(amplitude: Tensor, h: Tensor) -> Tensor:
    """Compute amplitude exp(-j angle h)."""
    return torch.conj(torch.sgn(h)) * amplitude


def invert_channel(root_eta: Tensor, link: Link) -> Tensor:
    """Compute |p_k| [S, Q, K] with which all transmitters have effective gain one.

    `root_eta` is sqrt(eta), [S, Q, 1].
    """
    amplitude = root_eta / link.h.abs().clamp_min(FADED_SNR)
    return torch.where(link.eligible_mask, amplitude, 0.0)


def align_phases(link: Link, amplitude: Tensor, root_eta: Tensor, active: Tensor) -> Coefficients:
    """Build the coefficients of devices with compensated phases.

    Parameters
    ----------
    link : Link
        Estimated channels [S, Q, K].
    amplitude : Tensor, float [S, Q, K]
        Amplitudes |p_k|.
    root_eta : Tensor, float [S, Q, 1]
        sqrt(eta).
    active : Tensor, bool [S, Q, K]
        Devices that the receiver counts.

    Returns
    -------
    Coefficients
        Transmit scalars and receive scaling.
    """
    return Coefficients(cophase(amplitude, link.h), root_eta[..., 0].square(), active)


def align_with_mmse_scaling(link: Link, amplitude: Tensor, active: Tensor) -> Coefficients:
    """Build the coefficients of devices with compensated phases and MMSE receive scaling.

    The parameters are those of `align_phases`.
    """
    root_eta, _ = compute_mmse_root_eta(link, amplitude * link.h.abs())
    return align_phases(link, amplitude, root_eta, active)


def apply_mmse_scaling(coefficients: Coefficients, link: Link) -> Coefficients:
    """Return the coefficients with MMSE receive scaling.

    If no useful signal is received, the policy's scaling stays.
    """
    root_eta, signal = compute_mmse_root_eta(link, (link.h * coefficients.p).real)
    eta = torch.where(signal > 0, root_eta.square(), coefficients.eta[..., None])
    return replace(coefficients, eta=eta[..., 0])


def compute_mmse_root_eta(link: Link, arrives: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compute the receive scaling of smallest mean squared error.

    Parameters
    ----------
    link : Link
        Symbol powers m and noise variance N.
    arrives : Tensor, float [S, Q, K]
        Received amplitudes a = Re(h p).

    Returns
    -------
    tuple of Tensor, float [S, Q, 1] each
        sqrt(eta), and the signal sum m a.

    Notes
    -----
    It minimises sum m (c - 1)^2 + N / eta, the error of uncorrelated symbols:

    .. math::

        \sqrt{\eta} = \frac{N + \sum_k m_k a_k^2}{\sum_k m_k a_k}
    """
    signal = (link.symbol_power * arrives).sum(-1, keepdim=True)
    energy = (link.symbol_power * arrives.square()).sum(-1, keepdim=True)
    return (link.noise_variance[:, None, None] + energy) / signal.clamp_min(TINY), signal


def compute_threshold(reach: Tensor, power: Tensor, noise: Tensor, there: Tensor) -> Tensor:
    r"""Compute min_i sqrt(eta_i) of the static optimum (see `cao_static`).

    Parameters
    ----------
    reach : Tensor, float [..., K]
        sqrt(q) of the devices.
    power : Tensor, float [..., K]
        Symbol powers m.
    noise : Tensor, float [..., 1]
        Noise variance N.
    there : Tensor, bool [..., K]
        Transmitters.

    Returns
    -------
    Tensor, float [..., 1]
        sqrt(eta).

    Notes
    -----
    With q in ascending order (Cao, Zhu, Xu, Huang 2020),

    .. math::

        \sqrt{\eta_i} = \frac{N + \sum_{j \leq i} m_j q_j}{\sum_{j \leq i} m_j \sqrt{q_j}}
    """
    order = torch.where(there, reach, math.inf).argsort(-1)  # others last
    sorted_reach, there = reach.gather(-1, order), there.gather(-1, order)
    m = torch.where(there, power.gather(-1, order), 0.0)
    energy = noise + (m * sorted_reach.square()).cumsum(-1)
    root = energy / (m * sorted_reach).cumsum(-1).clamp_min(TINY)
    largest = torch.finfo(root.dtype).max ** 0.5
    return torch.where(there, root, largest).amin(-1, keepdim=True)


def compute_reference_gain(statistics: ChannelStatistics, relative: bool) -> Tensor:
    """Return the mean large-scale gain to which thresholds are relative, or 1, [S]."""
    if relative:
        return statistics.gain.mean(1)
    return torch.ones_like(statistics.gain[:, 0])


def compute_reference_power(link: Link, reference: str) -> Tensor:
    """Return m_k / P_k [S, Q, 1] that determines the common scale, the inverse of |p|^2."""
    return reduce_over_devices(link.symbol_power / link.budget[:, None], link, reference)


def reduce_over_devices(cost: Tensor, link: Link, reference: str) -> Tensor:
    """Reduce costs [S, Q, K] over the transmitters to the largest ("max") or the mean ("mean").

    The result is [S, Q, 1].
    """
    sends = link.eligible_mask
    if reference == "max":
        return (cost * sends).amax(-1, keepdim=True).clamp_min(TINY)
    count = sends.sum(-1, keepdim=True).clamp_min(1)
    return ((cost * sends).sum(-1, keepdim=True) / count).clamp_min(TINY)


def compute_fixed_power(link: Link, gamma: float) -> Tensor:
    """Return |p|^2 [S, 1, 1] at which devices of equal weight transmit with power gamma.

    Each factor of a product contains sqrt(w_k), which the number of transmitters compensates.
    """
    count = link.transmit_mask.sum(1)[:, None, None].clamp_min(1).to(link.symbol_power)
    return torch.full_like(count, gamma) if link.is_linear else gamma * count


def get_segment_lengths(link: Link) -> tuple[Tensor, float]:
    """Return the symbols of each segment, [Q] float64, and of the slot.

    Segments have one symbol each if the link has no lengths.
    """
    if link.segment_lengths is None:
        count = link.h.shape[1]
        return torch.ones(count, dtype=torch.float64, device=link.h.device), float(count)
    lengths = link.segment_lengths.double()
    return lengths, float(link.num_symbols) if link.num_symbols else float(lengths.sum())
