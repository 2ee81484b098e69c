"""One group on air: transmit scalars by the power policy, reception and cost.

With the combiner f, |f| = 1, the scalar channels are h_k = f^H h_k e^(j phi_k), with a residual
phase phi_k, and the estimated ones f^H h_hat_k. With the transmit scalars p_k and the receive
scaling eta of the power policy, the receiver gets Re(f^H y) / sqrt(eta), which is

    sum_k c_k K w_k x_k + n,   c_k = Re(h_k p_k) / sqrt(eta),   n of variance N / eta.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from otafl.core.contracts import (
    NOISE_VARIANCE,
    ChannelStatistics,
    Coefficients,
    Hyper,
    Link,
    Tensors,
    apply_combiner,
)
from otafl.core.tensors import get_constant
from otafl.csi.base import Csi
from otafl.power.base import PowerPolicy, apply_mmse_scaling
from otafl.receivers.base import Receiver, Scalar
from otafl.uplink import noise
from otafl.uplink.delivery import Delivery, Slot, mark_delivered
from otafl.uplink.groups import compute_variation, divide_by_weights
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.signal import Segments, Signal, compute_energies, sum_segments


@dataclass(frozen=True)
class Alignment:
    """Parts that make signals add up coherently: channel estimates, combiner and power policy.

    Parameters
    ----------
    csi : Csi
        Channel estimates of devices and server.
    receiver : Receiver
        Combination of the server's antennas.
    policy : PowerPolicy
        Rule for transmit scalars and receive scaling.
    statistics : ChannelStatistics
        Long-term channel statistics, with which the policy prepares its state.
    hyper : Hyper
        Stackable fields of the policy, [S] each.
    impairments : Impairments
        Residual phases and interference.
    """

    csi: Csi
    receiver: Receiver
    policy: PowerPolicy
    statistics: ChannelStatistics
    hyper: Hyper
    impairments: Impairments

    def prepare(self) -> Any:
        """Return the policy's state before the first round."""
        return self.policy.prepare(self.statistics, self.hyper)


@dataclass(frozen=True)
class Transmission:
    """Transmission of a payload group.

    Parameters
    ----------
    slot : Slot
        Channels, budgets and limits that the groups of the payload share.
    sent, signal : Signal
        Rows x_k [n, P] of the devices, and these as transmitted, 0 from the crash of a device on.
    segments : Segments
        Q segments of the group.
    scale : Tensor, float [n]
        Factor of a row before p: K w_k for a mean.
    means : Tensor, float [n, Q], or None
        Means that were subtracted from the rows.
    energy : Tensor, float64 [S, Q, K]
        Sum of squares of a device's transmitted symbols in a segment, before p.
    power : Tensor, float64 [S, Q, K]
        Mean symbol power m of the normalised stretch, before p.
    h, h_hat : Tensor, complex [S, Q, K]
        True and estimated scalar channel.
    noise : Tensor, float [S, Q]
        Noise variance of one received real number, interference included.
    combiner : Tensor, complex [S, Q, A]
        Combiner f with unit norm.
    scalars : Coefficients
        Transmit scalars p [S, Q, K], receive scaling eta [S, Q], and the devices that the receiver
        counts.
    stop : Tensor, float [n, 1], or None
        Symbols of the group until the crash of each row; None if none crash.
    """

    slot: Slot
    sent: Signal
    signal: Signal
    segments: Segments
    scale: Tensor
    means: Tensor | None
    energy: Tensor
    power: Tensor
    h: Tensor
    h_hat: Tensor
    noise: Tensor
    combiner: Tensor
    scalars: Coefficients
    stop: Tensor | None = None

    def expand(self, values: Tensor) -> Tensor:
        """Expand values [n, Q] or [S, Q] of the segments to the coordinates, [.., P]."""
        return self.segments.expand(values, self.sent.num_coordinates)

    @functools.cached_property
    def active_rows(self) -> Tensor:
        """1 for rows that the receiver counts in a segment, else 0: float [n, Q]."""
        return self.sent.take_rows(self.scalars.active_mask.mT).to(self.scale.dtype)

    @functools.cached_property
    def weight(self) -> Tensor:
        """Total weight W [S, Q] of the devices that the receiver counts.

        With inverse probabilities it is 1 if it counts any.
        """
        weight = self.sent.sum_by_trial(self.sent.weight[:, None] * self.active_rows)
        return weight if self.sent.inverse is None else weight.sign()

    @functools.cached_property
    def unit(self) -> Tensor:
        """Factor [S, Q] of Re(f^H y) / sqrt(eta) in the estimate.

        1 / (K W) for a mean, 1 / K if the sum is divided by coordinate, 1 for a sum.
        """
        unit = torch.ones_like(self.weight)
        if self.sent.linear:
            unit = unit / self.sent.cohort.rows_per_trial.clamp_min(1.0)[:, None]
            if self.sent.mask is None:
                unit = unit / self.weight.clamp_min(1e-12)
        return unit

    @property
    def gain(self) -> Tensor:
        """Complex gain h p / sqrt(eta), [S, Q, K], whose real part is the effective gain c_k."""
        return self.h * (self.scalars.p / self.scalars.eta.sqrt()[..., None])

    @property
    def row_gain(self) -> Tensor:
        """Complex factor of a row's symbols in the estimate, [n, Q], in the symbols' precision."""
        unit = self.scale[:, None] * self.unit[self.sent.cohort.trial]
        gain = self.sent.take_rows(self.gain.mT) * unit
        return gain.to(self.sent.x.dtype.to_complex())

    @property
    def sum_unit(self) -> Tensor:
        """Factor of the sum of the devices in the estimate, [S, Q], 0 if no device is on air."""
        return torch.where(self.weight > 0, self.unit, 0.0)

    @property
    def sum_noise_std(self) -> Tensor:
        """Standard deviation [S, Q] of the noise of a received sum, in units of a device."""
        return (self.noise / self.scalars.eta).sqrt().to(self.sent.x.dtype)

    @property
    def received_unit(self) -> Tensor:
        """Factor of a received real number in the estimate, [S, Q], 0 if no device is on air."""
        unit = torch.where(self.weight > 0, self.unit / self.scalars.eta.sqrt(), 0.0)
        return unit.to(self.sent.x.dtype)

    @property
    def noise_std(self) -> Tensor:
        """Standard deviation [S, Q] of the noise of an estimated real number."""
        return self.received_unit * self.noise.sqrt().to(self.sent.x.dtype)

    def get_delivered_fn(self, active: Tensor) -> Callable[[], Tensor]:
        """Return `mark_delivered` as in `LinkReport.delivered_mask_fns`, given its `active` rows.

        The function holds no tensor of the payload's size.
        """
        given = self.sent.cohort, active, self.segments, self.stop, self.sent.num_coordinates
        return functools.partial(mark_delivered, *given)

    def weigh_coordinates(self) -> Tensor:
        """Compute the counted weight that has each coordinate, [S, P], of a group with a mask."""
        assert self.sent.mask is not None
        weight = (self.sent.weight[:, None] * self.active_rows)[..., None]
        parts = self.segments.parts(self.sent.mask)
        sums = [sum_segments(self.sent, part, weight, self.segments)[:, 0] for part in parts]
        return torch.cat(sums, 1)

    @property
    def sent_symbols(self) -> Tensor:
        """Symbols in which each device is on air: [Q, 1], or [S, Q, K] if some crash."""
        lengths = self.segments.get_lengths(self.energy)
        if self.stop is None:
            return lengths[:, None]
        firsts = lengths.cumsum(0) - lengths
        return self.sent.grid(torch.minimum((self.stop - firsts).clamp_min(0.0), lengths)).mT


def transmit(
    slot: Slot,
    sent: Signal,
    segments: Segments,
    alignment: Alignment,
    state: Any,
    *,
    is_scaled: bool = False,
    means: Tensor | None = None,
    clip: float | None = None,
) -> tuple[Any, Transmission]:
    r"""Put a group on air, with the powers of the policy within the limits of the slot.

    Parameters
    ----------
    slot : Slot
        Channels, budgets and limits.
    sent : Signal
        Symbols x_k of the devices, [n, P].
    segments : Segments
        Q segments, grouped into normalised stretches.
    alignment : Alignment
        Combiner, power policy and impairments.
    state : Any
        State of the power policy.
    is_scaled : bool
        Whether the symbols have the factor K w_k of a mean already.
    means : Tensor, float [n, Q], optional
        Means that were subtracted from the rows.
    clip : float, optional
        Norm to which all rows were clipped. Powers then follow from it, and not from the rows.

    Returns
    -------
    tuple of Any and Transmission
        The policy's next state, and the transmission.

    Notes
    -----
    With l the channel uses of the stretch that contains segment q, the mean symbol power is

    .. math::

        m_{kq} = \| K w_k x_k \|^2 / l
    """
    bounds = slot.bounds
    scale = torch.ones_like(sent.weight) if is_scaled else sent.scale
    slot = replace(slot, budget=sent.scale_budget(slot.budget))
    sends = sent.transmitter_mask if bounds is None else bounds.select_able(sent.transmitter_mask)
    h, h_hat, variance, combiner = _compute_channels(slot, segments, alignment, sends)
    row_energy = compute_energies(sent.x, segments) * scale.square()[:, None]
    energy = sent.grid(row_energy).mT
    lengths = slot.uses_per_symbol * segments.get_lengths(row_energy)
    if clip is None:
        stretch = segments.sum_over_scopes(row_energy)
    else:
        stretch = clip**2 * scale.square()[:, None]
    power = sent.grid(stretch / segments.sum_over_scopes(lengths)).mT
    impairments, variation = alignment.impairments, None
    if alignment.policy.needs_variation:
        variation = compute_variation(sent, segments, scale, row_energy)
    link = Link(
        h=h_hat,
        gain=slot.gain,
        budget=slot.budget,
        symbol_power=power if bounds is None else bounds.report_powers(power),
        noise_variance=impairments.compute_known_noise(slot.round)
        if impairments.grows
        else impairments.known_noise,
        transmit_mask=sends,
        is_linear=sent.linear,
        hyper=alignment.hyper,
        num_antennas=slot.h.shape[2],
        variation=variation,
        energy_budget=None if bounds is None else bounds.energy,
        segment_lengths=lengths,
        num_symbols=slot.num_uses,
        round=slot.round,
    )
    if alignment.policy.needs_segment_power:
        each = sent.grid(row_energy / lengths).mT
        link = replace(link, segment_power=each if bounds is None else bounds.report_powers(each))
    state, scalars = alignment.policy.compute_coefficients(state, link)
    if alignment.receiver.scale == "mmse":
        scalars = apply_mmse_scaling(scalars, link)
    # a row of zeros may get any scalar, so it gets 0
    scalars = replace(scalars, p=torch.where(power > 0, scalars.p, 0.0))
    signal, stop = sent, None
    if bounds is not None:
        scalars = bounds.limit(bounds.override(scalars, link, power), sends, energy)
        signal, stop = bounds.cut_at_crash(sent, segments)
        if stop is not None:
            energy = sent.grid(compute_energies(signal.x, segments) * scale.square()[:, None]).mT
    return state, Transmission(
        slot=slot,
        sent=sent,
        signal=signal,
        segments=segments,
        scale=scale,
        means=means,
        energy=energy,
        power=power,
        h=h,
        h_hat=h_hat,
        noise=variance,
        combiner=combiner,
        scalars=scalars,
        stop=stop,
    )


def _compute_channels(
    slot: Slot, segments: Segments, alignment: Alignment, sends: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the scalar channels of the segments, their noise, and the combiner.

    With one antenna, `scalar` combines nothing.

    Returns
    -------
    h, h_hat : Tensor, complex [S, Q, K]
        True channels f^H h_k e^(j phi_k), and the estimated ones.
    variance : Tensor, float [S, Q]
        Noise variance of a received real number.
    combiner : Tensor, complex [S, Q, A]
        Combiner f.
    """
    impairments, receiver = alignment.impairments, alignment.receiver

    def select_cells(h: Tensor) -> Tensor:
        if h.shape[3] > 1 or len(segments.cells) > 1:
            h = h.index_select(3, get_constant(segments.cells, torch.int64, h.device))
        return h.permute(0, 3, 1, 2)

    antennas = select_cells(slot.h)
    estimates = antennas if slot.h_hat is slot.h else select_cells(slot.h_hat)
    if antennas.shape[3] == 1 and isinstance(receiver, Scalar):
        combiner = antennas.new_ones(*antennas.shape[:2], 1)
        h, h_hat = antennas[..., 0], estimates[..., 0]
    else:
        combiner = receiver.combine(estimates, sends, slot.budget)
        h = apply_combiner(combiner, antennas)
        h_hat = h if estimates is antennas else apply_combiner(combiner, estimates)
    variance = h.real.new_full(h.shape[:2], NOISE_VARIANCE)
    if impairments.rotates_phase:
        phases = noise.draw_phases(impairments, h.shape[2], slot.round)
        h = h * torch.polar(torch.ones_like(phases), phases)[:, None]
    if impairments.adds_noise or impairments.grows:
        variance = noise.draw_variance(impairments, combiner, slot.round)
    return h, h_hat, variance, combiner


def receive(on_air: Transmission, total: Tensor, exact: Tensor, delivery: Delivery) -> None:
    """Pass the server its estimate of a group, and add the aggregation error.

    Means that devices subtracted are added. In a group with a mask, each coordinate's sum is
    divided by the weight of the devices that have it.

    Parameters
    ----------
    on_air : Transmission
        Transmission of the group.
    total, exact : Tensor, float [S, P]
        Received sum, and error-free sum.
    delivery : Delivery
        Gets the estimate.
    """
    sent, segments = on_air.sent, on_air.segments
    if on_air.means is not None:
        delivered = on_air.scale[:, None] * on_air.means * on_air.active_rows
        total = total + on_air.expand(sent.sum_by_trial(delivered) * on_air.unit)
        exact = exact + on_air.expand(sent.sum_by_trial(sent.exact[:, None] * on_air.means))
    count: Tensor | Tensors = on_air.weight[:, 0]
    reached = None
    if sent.mask is not None:
        total, exact, count = divide_by_weights(sent, total, exact, on_air.weigh_coordinates())
    elif len(segments.bounds) > 1:
        reached = sent.blocks(on_air.expand(on_air.weight))
    active = sent.take_rows(on_air.scalars.on_air_mask.mT)
    delivered_fn = on_air.get_delivered_fn(active)
    delivery.give_estimate(sent, total, exact, count, reached, delivered_fn=delivered_fn)


def account(on_air: Transmission, delivery: Delivery, num_scalars: int) -> None:
    """Add the channel uses, energy and side information of a group to the delivery's.

    With e_kq the energy of the symbols before p, device k radiates sum_q |p_kq|^2 e_kq. The energy
    is subtracted from what the device has left.

    Parameters
    ----------
    on_air : Transmission
        Transmission of the group.
    delivery : Delivery
        Sums up the cost.
    num_scalars : int
        Real numbers of side information from each device.
    """
    slot, sent, scalars = on_air.slot, on_air.sent, on_air.scalars
    transmits = scalars.on_air_mask
    spent = (scalars.p.abs().double().square() * on_air.energy).sum(1)
    senders = sent.cohort.rows_per_trial
    delivery.add(
        symbols=(senders > 0) * float(slot.uses_per_symbol * on_air.segments.symbols),
        energy=spent,
        sent=slot.uses_per_symbol * (transmits * on_air.sent_symbols).sum(1),
        side=senders * float(num_scalars),
        on_air=transmits.any(1),
    )
    delivery.note_delivered(sent, on_air.weight)
    if slot.bounds is not None:
        slot.bounds.spend(spent)
