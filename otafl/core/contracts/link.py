"""Hold what the parts of an uplink hand to each other: channels, what is known of them, limits,
costs.

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

from otafl.core.contracts.tensors import Hyper, Tensors
from otafl.core.renamed import Renamed

NOISE_VARIANCE = 0.5
"""N: variance of one received real, half the receiver's complex noise variance."""

MIN_SNR = 1e-12
"""A device that full power brings no closer to the noise than this, 120 dB below it, has no channel
over the air. Averages over a payload of any size do not lift it out of the noise, and what is
divided by it stays finite in single precision."""

MIN_RATE = 1e-6
"""Bits a channel use, those of 62 dB below the noise, under which a packet is not begun: it would
not end."""


@dataclass(frozen=True)
class LinkBudget(Renamed):
    """Hold how much the devices may transmit, and what that is in watts.

    Parameters
    ----------
    budget : [S, K], bound on |p|^2 times the mean symbol power, linear.
    gain : [S, K], fixed large-scale power gain, linear.
    unit_power_w : [S], watts of unit power, that of the noise.
    bandwidth_hz : [S].
    is_physical : [S] bool, False where the budget is an SNR at gain 1.
    """

    budget: Tensor
    gain: Tensor
    unit_power_w: Tensor
    bandwidth_hz: Tensor
    is_physical: Tensor

    @functools.cached_property
    def tx_power_w(self) -> Tensor:
        """Return the budgets in watts, [S, K]."""
        return self.budget * self.unit_power_w[:, None]

    @functools.cached_property
    def unit_energy_j(self) -> Tensor:
        """Return the joules of one symbol of unit power, [S]; it lasts 1 / bandwidth."""
        return self.unit_power_w / self.bandwidth_hz


@dataclass(frozen=True)
class Paths:
    """Hold the impulse responses of one round, h(f) = sum_l a_l exp(-j 2 pi f tau_l).

    Parameters
    ----------
    a : [S, K, A, B, L] complex, at the carrier.
    delay_s : tau [S, K or 1, B or 1, L] float64, one for all that share it.
    """

    a: Tensor
    delay_s: Tensor


@dataclass(frozen=True)
class ChannelState(Renamed):
    """Hold the channel of one round.

    Parameters
    ----------
    h : [S, K, A, B, F] complex, E|h|^2 = 1; B is 1 for a channel that can say more (`blocks_fn`).
    gain : [S, K], linear large-scale power gain.
    block_symbols : channel uses of one coherence block, its F sub-carrier groups together; None: h
        lasts for the whole payload.
    blocks_fn : blocks -> [S, K, A, blocks, F], for a payload that is longer than a block; the first
        is h.
    paths_fn : blocks -> the impulse responses that h follows from; None where none are known: a
        flat channel, or one that is told by its frequency responses.
    """

    h: Tensor
    gain: Tensor
    block_symbols: int | None = None
    blocks_fn: Callable[[int], Tensor] | None = None
    paths_fn: Callable[[int], Paths] | None = None

    def extend_to(self, num_symbols: int) -> Tensor:
        """Return h [S, K, A, B, F] of as many blocks as so many channel uses last."""
        if self.block_symbols is None or self.blocks_fn is None:
            return self.h
        return self.blocks_fn(max(1, -(-num_symbols // self.block_symbols)))

    def compute_cell_ends(self, h: Tensor, num_symbols: int) -> list[int]:
        """Return the channel use after which each cell (b, f) of h = `extend_to(symbols)` ends.

        Cells come in the order of h flattened over (B, F). A block's groups are filled one after
        the other, evenly.
        """
        blocks, groups = h.shape[3:]
        length = self.block_symbols or -(-num_symbols // blocks)
        stops = []
        for block in range(blocks):
            here = min(length, num_symbols - block * length)  # channel uses of this block
            for group in range(1, groups + 1):
                stops.append(block * length + here * group // groups)
        return stops


@dataclass(frozen=True)
class Link(Renamed):
    """Hold what a power policy may see, for Q segments of a payload sent with one coefficient each.

    Parameters
    ----------
    h : [S, Q, K] complex, the estimate of the scalar channel after the receiver's combining, whose
        noise is that of one antenna; large-scale gain included.
    gain : [S, K].
    budget : [S, K], bound on |p|^2 times the mean symbol power.
    symbol_power : [S, Q, K], mean symbol power m_k of what is sent (side information).
    noise_variance : [S], variance N of one received real, known interference included.
    transmit_mask : [S, K] bool, who has something to send. Of those, those in `eligible_mask` are
        on air.
    is_linear : False for the factors of a product (weighting "none").
    hyper : the policy's fields, [S] each.
    num_antennas : A.
    variation : [S, Q], squared multivariate coefficient of variation of the symbols over the
        devices, for a policy that `needs_variation` (side information).
    energy_budget : [S, K], most that a device can radiate in this slot, in units of the receiver's
        noise variance times symbols, inf where there is no bound; None: no bounds at all.
    segment_lengths : [Q], symbols of each segment.
    num_symbols : symbols of the whole slot.
    """

    h: Tensor
    gain: Tensor
    budget: Tensor
    symbol_power: Tensor
    noise_variance: Tensor
    transmit_mask: Tensor
    is_linear: bool
    hyper: Hyper
    num_antennas: int = 1
    variation: Tensor | None = None
    energy_budget: Tensor | None = None
    segment_lengths: Tensor | None = None
    num_symbols: int = 0

    @property
    def eligible_mask(self) -> Tensor:
        """Return who can send, segment by segment, [S, Q, K] bool: who has something to send and a
        channel, P_k |h_k|^2 >= `MIN_SNR`."""
        channel = self.budget[:, None] * self.h.abs().square() >= MIN_SNR
        return self.transmit_mask[:, None] & channel


@dataclass(frozen=True)
class TransmitLimits(Renamed):
    """Bound a slot's transmissions beside the power budget, [S, K] each; None: no bound.

    Parameters
    ----------
    power_share : share of the budget that a device keeps to, above 0.
    energy_budget : most that it can radiate in the slot, of which each channel use costs
        `energy_per_symbol` for its circuits first; both in units of the receiver's noise variance
        times symbols.
    sent_fraction : share of its symbols that a device sends before it crashes, 1 for one that does
        not.
    num_copies : times that it sends its update, by mistake 2.
    trial_mask : [S] bool, the trials whose slot it is; None: all.
    """

    power_share: Tensor | None = None
    energy_budget: Tensor | None = None
    energy_per_symbol: Tensor | None = None
    sent_fraction: Tensor | None = None
    num_copies: Tensor | None = None
    trial_mask: Tensor | None = None


NO_LIMITS = TransmitLimits()


@dataclass(frozen=True)
class Coefficients(Renamed):
    """Hold transmit and receive scalars.

    Parameters
    ----------
    p : [S, Q, K] complex transmit scalars, 0 where silent.
    eta : [S, Q] receive scaling, above 0.
    active_mask : [S, Q, K] bool, whom the receiver counts in its mean.
    silent_mask : [S, Q, K] bool, who of them is silent without the receiver's knowing; None:
        nobody.
    """

    p: Tensor
    eta: Tensor
    active_mask: Tensor
    silent_mask: Tensor | None = None

    @property
    def on_air_mask(self) -> Tensor:
        """Return who sends, [S, Q, K] bool."""
        return (
            self.active_mask if self.silent_mask is None else self.active_mask & ~self.silent_mask
        )


@dataclass(frozen=True)
class ChannelStatistics(Renamed):
    """Say what is known of the channel in the long run, after the receiver's combining.

    Parameters
    ----------
    gain, budget : [S, K].
    noise_variance : [S], N.
    mean_amplitude : () -> [S, K], E Re(h exp(-j angle h_hat)) of devices that pre-compensate the
        phase they believe in, large-scale gain included.
    mean_power : () -> [S, K], E|h|^2.
    mean_inverse : threshold [S] -> [S, K], E[1/|h_hat|^2; |h_hat|^2 >= threshold] of the estimate
        that devices act on.
    prob_unit_gain_above : threshold [S] -> [S, K], the chance that |h_hat|^2 of the unit
        channel, mean over antennas and sub-carriers, is at least the threshold.
    prob_gain_above : threshold [S, K] -> [S, K], the chance that |h_hat|^2 of one segment,
        large-scale gain included, is at least each device's own threshold.
    draw_samples : n -> [n, S, K] independent h_hat.
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
    """Return the scalar channels f^H h_k [..., K] that a server makes of its A antennas.

    Their noise is that of one antenna.

    Parameters
    ----------
    combiner : f [..., A] complex, |f| = 1.
    h : [..., K, A].
    """
    if h.shape[-1] == 1:
        return combiner.conj() * h[..., 0]
    return torch.einsum("...a,...ka->...k", combiner.conj(), h)


@dataclass(frozen=True)
class LinkReport(Renamed):
    """Say what a delivery cost and how far it was off, per trial or per (trial, device).

    Parameters
    ----------
    symbols, bits, side_symbols, airtime_s, participants : [S].
    power : [S, K], mean of |p|^2 |x|^2 over the payload, in units of the receiver's noise variance.
    energy_j : [S, K], radiated.
    on_air_s : [S, K], seconds of the slot in which the device transmits.
    nmse : [S], squared aggregation error over squared error-free aggregate, uplink groups together.
    saved_tensors : name -> tensor, the coefficients themselves, where asked for.
    delivered_mask_fns : of each payload group a function that says what the server has received of
        it, [S, K] bool, or [S, K, P] where some of a row's P reals may be missing: what was on air
        before a crash, or whose packet arrived. Asked by those alone who keep something by it.
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
