"""Channels, their statistics, transmit limits and costs of an uplink.

Sizes: S trials of one stack, K devices in the population, A server antennas, B coherence blocks, F
sub-carrier groups, Q segments of a payload that are sent with one coefficient each. Powers are in
units of the receiver's complex noise variance, so that sigma^2 = 1 and N = 1/2.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from otafl.core.tensors import Tensors

NOISE_VARIANCE = 0.5
"""Variance N of one received real number, half the receiver's complex noise variance."""

MIN_RATE = 1e-6
"""Smallest rate in bits a channel use at which a packet starts, that of an SNR of -62 dB.

A packet at a lower rate would take too long to end.
"""


@dataclass(frozen=True)
class LinkBudget:
    """Power budgets of the devices, and their scale in watts.

    Parameters
    ----------
    budget : Tensor [S, K]
        Bound on |p|^2 times the mean symbol power, linear.
    gain : Tensor [S, K]
        Fixed large-scale power gain, linear.
    unit_power_w : Tensor, float64 [S]
        Watts of unit power, the power of the noise.
    bandwidth_hz : Tensor [S]
        Bandwidth in hertz.
    is_physical : Tensor, bool [S]
        False if the budget is an SNR at gain 1.
    """

    budget: Tensor
    gain: Tensor
    unit_power_w: Tensor
    bandwidth_hz: Tensor
    is_physical: Tensor

    @functools.cached_property
    def tx_power_w(self) -> Tensor:
        """The budgets in watts, [S, K]."""
        return self.budget * self.unit_power_w[:, None]

    @functools.cached_property
    def unit_energy_j(self) -> Tensor:
        """The energy in joules of one symbol of unit power, which lasts 1 / bandwidth, [S]."""
        return self.unit_power_w / self.bandwidth_hz


@dataclass(frozen=True)
class Paths:
    r"""Impulse responses of one round.

    Parameters
    ----------
    a : Tensor, complex [S, K, A, B, L]
        Path coefficients at the carrier frequency.
    delay_s : Tensor, float64 [S, K or 1, B or 1, L]
        Path delays tau in seconds; a size of 1 if all devices or blocks share them.

    Notes
    -----
    The frequency response at an offset f from the carrier is

    .. math::

        h(f) = \sum_l a_l e^{-j 2 \pi f \tau_l}.
    """

    a: Tensor
    delay_s: Tensor


@dataclass(frozen=True)
class ChannelState:
    """Channel of one round.

    Parameters
    ----------
    h : Tensor, complex [S, K, A, B, F]
        Small-scale fading with E|h|^2 = 1. B is 1 if `blocks_fn` can give more blocks.
    gain : Tensor [S, K]
        Large-scale power gain, linear.
    block_symbols : int, optional
        Channel uses of one coherence block, all F sub-carrier groups together. If not given, h
        lasts for the whole payload.
    blocks_fn : callable, optional
        Function of a number of blocks that returns fading [S, K, A, blocks, F] for a payload that
        is longer than a block. Its first block is h.
    paths_fn : callable, optional
        Function of a number of blocks that returns the impulse responses behind h. A flat channel,
        or one that is given by its frequency responses, has no impulse responses.
    """

    h: Tensor
    gain: Tensor
    block_symbols: int | None = None
    blocks_fn: Callable[[int], Tensor] | None = None
    paths_fn: Callable[[int], Paths] | None = None

    def extend_to(self, num_symbols: int) -> Tensor:
        """Return the fading of a payload.

        Parameters
        ----------
        num_symbols : int
            Channel uses of the payload.

        Returns
        -------
        Tensor, complex [S, K, A, B, F]
            Fading of the B coherence blocks that the payload lasts.
        """
        if self.block_symbols is None or self.blocks_fn is None:
            return self.h
        return self.blocks_fn(max(1, -(-num_symbols // self.block_symbols)))


@dataclass(frozen=True)
class TransmitLimits:
    """Limits of a slot's transmissions besides the power budget; a limit that is None is absent.

    Parameters
    ----------
    power_share : Tensor [S, K], optional
        Share of the budget that a device may use, above 0.
    energy_budget : Tensor [S, K], optional
        Largest energy of a device in the slot. Each channel use first costs `energy_per_symbol` for
        the circuits, and the rest can be radiated. The unit is the receiver's noise variance times
        symbols.
    energy_per_symbol : Tensor [S, K], optional
        Circuit energy of a channel use, in the same unit.
    sent_fraction : Tensor [S, K], optional
        Share of its symbols that a device sends before it crashes; 1 for a device that does not
        crash.
    num_copies : Tensor [S, K], optional
        Number of times that a device sends its update; 2 for a device that repeats it by mistake.
    full_power_mask : Tensor, bool [S, K], optional
        Devices that transmit with their whole power budget, whatever the policy says.
    reported_power : Tensor [S, K], optional
        Factor on the mean symbol power that a device reports; 1 for an honest device.
    trial_mask : Tensor, bool [S], optional
        Trials that have this slot; all if not given.
    """

    power_share: Tensor | None = None
    energy_budget: Tensor | None = None
    energy_per_symbol: Tensor | None = None
    sent_fraction: Tensor | None = None
    num_copies: Tensor | None = None
    full_power_mask: Tensor | None = None
    reported_power: Tensor | None = None
    trial_mask: Tensor | None = None


NO_LIMITS = TransmitLimits()
"""No limit besides the power budget."""


@dataclass(frozen=True)
class ChannelStatistics:
    """Long-term statistics of the channel after the receiver's combining.

    Parameters
    ----------
    gain, budget : Tensor [S, K]
        Large-scale power gain, and power budget.
    noise_variance : Tensor [S]
        Variance N of one received real number.
    mean_amplitude : callable
        Function without arguments that returns E Re(h exp(-j angle h_hat)) [S, K], with large-scale
        gain, for devices that compensate the phase of their estimate h_hat.
    mean_power : callable
        Function without arguments that returns E|h|^2 [S, K].
    mean_inverse : callable
        Function of a threshold [S] that returns E[1/|h_hat|^2; |h_hat|^2 >= threshold] [S, K] of
        the estimate that devices use.
    prob_unit_gain_above : callable
        Function of a threshold [S] or [S, K] that returns the probability [S, K] that |h_hat|^2 is
        at least the threshold. The channel is without large-scale gain, and averaged over antennas
        and sub-carriers.
    prob_gain_above : callable
        Function of a threshold [S, K] for each device that returns the probability [S, K] that
        |h_hat|^2 of one segment is at least the threshold. The channel is with large-scale gain.
    draw_samples : callable
        Function of a number n that returns n independent estimates h_hat [n, S, K].
    """

    gain: Tensor
    budget: Tensor
    noise_variance: Tensor
    mean_amplitude: Callable[[], Tensor]
    mean_power: Callable[[], Tensor]
    mean_inverse: Callable[[Tensor], Tensor]
    prob_unit_gain_above: Callable[[Tensor], Tensor]
    prob_gain_above: Callable[[Tensor], Tensor]
    draw_samples: Callable[[int], Tensor]


def apply_combiner(combiner: Tensor, h: Tensor) -> Tensor:
    """Compute the scalar channels after receive combining.

    Parameters
    ----------
    combiner : Tensor, complex [..., A]
        Combiner f with |f| = 1, so that the noise is that of one antenna.
    h : Tensor, complex [..., K, A]
        Channels of the A antennas.

    Returns
    -------
    Tensor, complex [..., K]
        Scalar channels f^H h_k.
    """
    if h.shape[-1] == 1:
        return combiner.conj() * h[..., 0]
    return torch.einsum("...a,...ka->...k", combiner.conj(), h)


@dataclass(frozen=True)
class LinkReport:
    """Cost and error of a delivery, for each trial or for each device of a trial.

    Parameters
    ----------
    symbols, bits, side_symbols, airtime_s, participants : Tensor [S]
        Channel uses, bits, symbols of side information, seconds of the slot, and aggregated
        devices.
    power : Tensor [S, K]
        Mean of |p|^2 |x|^2 over the payload, in units of the receiver's noise variance.
    energy_j : Tensor [S, K]
        Radiated energy in joules.
    on_air_s : Tensor [S, K]
        Seconds of the slot in which the device transmits.
    nmse : Tensor [S]
        Squared aggregation error over the squared error-free aggregate, all uplink groups together.
    saved_tensors : dict of str to Tensor
        Channels, coefficients and gains, if the scenario saves them.
    delivered_mask_fns : tuple of callable
        For each payload group a function that returns the coordinates that the server has received:
        bool [S, K], or [S, K, P] if a crash or a lost packet can remove a part of a row's P
        coordinates. It is called only for components with acknowledged state.
    """

    symbols: Tensor
    bits: Tensor
    side_symbols: Tensor
    airtime_s: Tensor
    participants: Tensor
    power: Tensor
    energy_j: Tensor
    on_air_s: Tensor
    nmse: Tensor
    saved_tensors: Tensors = field(default_factory=dict)
    delivered_mask_fns: tuple[Callable[[], Tensor], ...] = ()
