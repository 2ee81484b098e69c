"""Superposition of all devices' analogue signals on the same symbols, with noise.

The receiver gets y = sum_k h_k p_k x_k + z, with noise z ~ CN(0, sigma^2) for each symbol and
antenna. The combiner f, |f| = 1, turns the antennas into one scalar channel f^H h_k with the noise
of one antenna. The payload is real and devices pre-compensate the estimated phase, so Re(f^H y)
contains all of it. With the effective gains c_k = Re(f^H h_k p_k) / sqrt(eta),

    Re(f^H y) / sqrt(eta) = sum_k c_k x_k + n,

where n has variance N / eta, N = sigma^2 / 2. For a weighted mean, a device sends K w_k x_k. Silent
devices do not count in K and in the weights. The estimate is

    (1 / W) sum_k c_k w_k x_k + n / (K W)

with W the weight on air. It is computed as one weighted reduction of real numbers (`superpose`),
without a complex array of the payload's size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import Cohort, Payload, Tensors
from otafl.core.settings import DataDisclosure
from otafl.csi.base import Csi
from otafl.privacy.checks import refuse_ideal
from otafl.uplink import noise
from otafl.uplink.base import Counts, Parts, Transport
from otafl.uplink.delivery import Delivery, Slot, lay_out
from otafl.uplink.groups import centre
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.inverse_probability import LossSettings, divide_weights, refuse
from otafl.uplink.report import collect_coefficients
from otafl.uplink.signal import Segments, Signal, compute_energies, cut, sum_quadratures
from otafl.uplink.transmission import Alignment, Transmission, account, receive, transmit


class AnalogSettings(Transport.Settings):
    """Common settings of the transports that send normalised real values as they are."""

    normalise: Literal["payload", "block"] = "payload"
    """scope of a transmit scalar: a device's whole payload, or each tensor; the mean symbol powers
    that it depends on are side information and counted"""
    snr_convention: Literal["per_symbol", "total_energy"] = "per_symbol"
    """meaning of the power budget: bound on the mean power of a symbol, or on the energy of the
    whole payload (FedRLR's literal definition)"""
    quadrature: bool = False
    """two real numbers per symbol, one on each quadrature carrier, instead of one"""
    centre: Annotated[bool, DataDisclosure(True, False, "the means of payloads")] = False
    """whether each device sends deviations from the mean of its normalised stretch; the means are
    side information. Payloads of which devices have different parts are not centred"""

    def find_conflicts(self) -> Iterator[str]:
        if self.quadrature and self.normalise == "block":
            yield (
                "quadrature: true pairs real numbers of the whole payload and needs normalise: "
                "payload, got normalise: block"
            )


def lay_out_reals(delivery: Delivery, settings: AnalogSettings, csi: Csi) -> Slot:
    """Lay out the slot of a delivery by the settings.

    Parameters
    ----------
    delivery : Delivery
        Signals to send.
    settings : AnalogSettings
        A budget on the payload's total energy is spread over the symbols that a device sends.
    csi : Csi
        Channel estimates.

    Returns
    -------
    Slot
        The slot.
    """
    signals = delivery.uplink
    halves = 2 if settings.quadrature else 1
    lengths = [-(-sent.num_coordinates // halves) for sent in signals]
    slot = lay_out(delivery, lengths, csi, delivery.limits)
    if settings.snr_convention == "total_energy":
        sends = torch.zeros_like(slot.budget)
        for sent, length in zip(signals, lengths, strict=True):
            sends = sends + length * sent.grid(torch.ones_like(sent.weight))
        slot = replace(slot, budget=slot.budget / sends.clamp_min(1.0))
    return slot


def normalise_reals(
    slot: Slot, uses: range, sent: Signal, settings: AnalogSettings
) -> tuple[Signal, Tensor | None, Segments]:
    """Cut and centre the symbols of a group [n, P].

    Parameters
    ----------
    slot : Slot
        Cells of the channel.
    uses : range
        Channel uses of the group.
    sent : Signal
        Rows of the group, [n, P].
    settings : AnalogSettings
        Scope of the normalisation.

    Returns
    -------
    sent : Signal
        Symbols to send.
    means : Tensor, float [n, Q], or None
        Subtracted means; None if nothing is subtracted.
    segments : Segments
        Segments of the group.
    """
    scope_stops = tuple(sent.tensor_stops) if settings.normalise == "block" else ()
    segments = cut(uses, slot.cell_stops, scope_stops, settings.quadrature)
    return (*centre(sent, segments), segments) if settings.centre else (sent, None, segments)


class OverTheAir(Transport):
    """Coherent over-the-air aggregation. Example: `scenarios/quickstart.yaml`."""

    supports_snr_growth: ClassVar[bool] = True
    state_attrs: ClassVar[tuple[str, ...]] = ("_policy_state",)
    provides: ClassVar[frozenset[str]] = frozenset({"mean"})
    counts: ClassVar[Counts] = "shared"
    obeys_power: ClassVar[bool] = True
    accounts_privacy: ClassVar[bool] = True
    supports_power_factors: ClassVar[bool] = True
    supports_intercell: ClassVar[bool] = True
    supports_heavy_tails: ClassVar[bool] = True

    class Settings(LossSettings, AnalogSettings):
        name: Literal["over_the_air"] = "over_the_air"

    def __init__(self, settings: Settings, parts: Parts) -> None:
        super().__init__(settings, parts)
        self.privacy, self.neighbours = parts.privacy, parts.neighbours
        self._policy_state = self.alignment.prepare()

    @property
    def uses_empty_slots(self) -> bool:
        return self.privacy is not None and self.privacy.uses_sampling

    def compute_metrics(self) -> dict[str, Tensor]:
        return {} if self.privacy is None else self.privacy.compute_metrics()

    def state_dict(self) -> dict[str, Any]:
        """Return the policy's state, and that of the privacy accounting."""
        if self.privacy is None:
            return super().state_dict()
        return {**super().state_dict(), "privacy": self.privacy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self.privacy is not None:
            self.privacy.load_state_dict(state["privacy"])

    def check_payload(self, payload: Payload) -> None:
        if self.privacy is not None:
            refuse_ideal(payload)

    def transmit(self, delivery: Delivery) -> None:
        """Send the groups one after the other.

        Rows x_k [n, P] become normalised symbols. The policy sets p_k and eta for the scalar
        channels f^H h_k of their segments, the signals add up, and the server gets the estimate [S,
        P].
        """
        link, settings, privacy = self.alignment, self.settings, self.privacy
        slot, clip = lay_out_reals(delivery, settings, link.csi), None
        if settings.divides_by_probability:
            probability = self._compute_delivery_probability(slot.gain)
            divide_weights(delivery, probability, settings, self.parts)
        if privacy is not None:
            # compute sum |h|^2 over the antennas of all servers of a device, [S, K, cells]
            own = slot.h.abs().square().sum(2)
            gains = own if self.neighbours is None else own + self.neighbours.power_gains(slot)
            sends = torch.stack([rows.transmitter_mask for rows in delivery.uplink]).any(0)
            symbols = slot.num_uses // delivery.turns
            budget = privacy.limit_power(
                slot.budget, gains.amax(2), symbols, slot.round, sends, delivery.limits
            )
            slot, clip = replace(slot, budget=budget), privacy.clip
        for uses, rows in zip(slot.group_symbols, delivery.uplink, strict=True):
            if privacy is not None:
                rows = replace(rows, x=privacy.clip_rows(rows.x))
            sent, means, segments = normalise_reals(slot, uses, rows, settings)
            self._policy_state, on_air = transmit(
                slot, sent, segments, link, self._policy_state, means=means, clip=clip
            )
            if privacy is not None:
                received = self._compute_received_power(on_air, gains)
                privacy.spend(received.amax(1), sent.grid(on_air.scale).double())
            # with privacy, powers follow from the common clipping norm
            account(on_air, delivery, count_scalars(on_air, privacy is None, link))
            unwanted: Tensors = {}  # in the unit of f^H y
            if self.neighbours is not None:
                unwanted["neighbours"] = self.neighbours.signal(on_air)
            if link.impairments.heavy:
                unwanted["tails"] = noise.draw_tails(link.impairments, sent, slot.round)
            total, exact = self._superpose(on_air, unwanted)
            receive(on_air, total, exact, delivery)
            if self.parts.save_link:
                for name, signal in unwanted.items():
                    delivery.saved[f"{name}/{sent.index}"] = compute_energies(signal, segments)
                delivery.saved |= collect_coefficients(on_air, self.parts.save_gram)

    def _compute_delivery_probability(self, gain: Tensor) -> Tensor:
        """Compute the probability [S, K] that a device of large-scale gain [S, K] is on air."""
        least = self.alignment.policy.get_least_gain(self._policy_state)
        if least is None or self.alignment.receiver.scale == "mmse":
            refuse("needs power: tci or cotaf, whose threshold is known, and an unbiased receiver")
        statistics = self.alignment.statistics
        return statistics.prob_gain_above(least[:, None] * statistics.gain / gain)

    def _superpose(self, on_air: Transmission, unwanted: Tensors) -> tuple[Tensor, Tensor]:
        """Sum the signals with noise and interference, and convert the sum.

        Returns
        -------
        tuple of Tensor, float [S, P] each
            Scaled sum sum_k c_k x_k + n, and the error-free sum sum_k w_k x_k.
        """
        impairments, sent, exact = self.alignment.impairments, on_air.sent, None
        if impairments.is_nonlinear:
            total = superpose_distorted(on_air, impairments)
        else:
            drawn = noise.draw_noise(self.parts.streams, sent, on_air.slot.round)
            total, exact = superpose(on_air, drawn)
        for signal in unwanted.values():
            total = total + signal * on_air.expand(on_air.received_unit)
        if impairments.settings.adc_bits is not None:
            factor = on_air.expand((on_air.scalars.eta.sqrt() / on_air.unit).to(total.dtype))
            total = impairments.quantise(total * factor) / factor
            total = torch.where(on_air.expand(on_air.weight > 0), total, 0.0)
        if exact is None or on_air.stop is not None:
            exact = sent.sum(sent.exact[:, None])[:, 0]
        return total, exact

    def _compute_received_power(self, on_air: Transmission, gains: Tensor) -> Tensor:
        """Compute the power gains [S, Q, K] of devices, of which privacy is accounted.

        A `curious` server uses all antennas and both quadratures, g_k^2 = sum_a |h_ka p_k|^2. An
        `honest` one keeps only the symbols that it estimates from, g_k^2 = Re(f^H h_k p_k)^2. If
        several servers receive a device, g_k^2 is the sum over them.

        Parameters
        ----------
        on_air : Transmission
            Transmission of the group.
        gains : Tensor, float [S, K, cells]
            Sum of |h|^2 over the antennas of all servers of a device.
        """
        privacy, p, segments = self.privacy, on_air.scalars.p, on_air.segments
        if privacy is None or privacy.settings.adversary == "curious":
            return gains[..., list(segments.cells)].mT.double() * p.abs().double().square()
        # carrier offsets turn a payload from one quadrature to the other
        one_quadrature = segments.halves == 1 and not self.alignment.impairments.shifts_carrier

        def square(gain: Tensor) -> Tensor:
            return (gain.real if one_quadrature else gain.abs()).double().square()

        power = square(on_air.h * p)
        if self.neighbours is None:
            return power
        table = self.neighbours.scalar_gains(on_air)  # [S, C K, Q, C]
        servers = table.shape[3]
        sent = p.unflatten(0, (-1, servers)).transpose(2, 3).flatten(1, 2)
        others = square(table * sent[..., None]).sum(3)
        return power + others.unflatten(1, (servers, -1)).flatten(0, 1).mT


def superpose(on_air: Transmission, noise: Tensor) -> tuple[Tensor, Tensor]:
    r"""Sum the rows with their effective gains and the receiver's noise, reading the signal once.

    Parameters
    ----------
    on_air : Transmission
        Rows x_k [n, P] with their effective gains c_k.
    noise : Tensor, float [S, P]
        Standard normal noise.

    Returns
    -------
    tuple of Tensor, float [S, P] each
        The estimate, and the error-free aggregate.

    Notes
    -----
    The estimate of a weighted mean, with noise n of variance N / eta, is

    .. math::

        \frac{1}{W} \sum_k c_k w_k x_k + \frac{n}{K W}
    """
    gain = on_air.row_gain
    exact = on_air.signal.exact.to(gain)[:, None].expand_as(gain)
    gains = torch.stack([gain, exact], 2)
    estimate, target = sum_quadratures(on_air.signal, gains, on_air.segments).unbind(1)
    return estimate.addcmul(noise, on_air.expand(on_air.noise_std)), target


def count_scalars(on_air: Transmission, power: bool, link: Alignment) -> int:
    """Count the real numbers of side information of a device.

    Parameters
    ----------
    on_air : Transmission
        Its stretches, and the subtracted means.
    power : bool
        Whether the mean power of each stretch is reported.
    link : Alignment
        Says whether the variation of the symbols over devices is reported, and whether the power
        is that of each segment.

    Returns
    -------
    int
        Number of real numbers.
    """
    stretches = on_air.segments.scopes[-1] + 1
    each = len(on_air.segments.bounds) - stretches if link.policy.needs_segment_power else 0
    return stretches * (power + (on_air.means is not None) + link.policy.needs_variation) + each


CHUNK = 1 << 18
"""Coordinates of a payload that are processed at a time, so that they fit the processor's cache."""


def superpose_distorted(on_air: Transmission, impairments: Impairments) -> Tensor:
    """Compute the estimate of a transmission whose symbols are distorted, with noise.

    Pulses are rectangular, and a delay d_k is less than one symbol. The receiver's filter is
    matched to the symbols of the first device on air, so that it gets a part of the previous
    symbol (Shao, Gunduz, Liew 2021, "Federated Edge Learning with Misaligned Over-the-Air
    Computation"):

        r(i) = sum_k [(1 - d_k) v_k(i) + d_k v_k(i - 1)] + n(i)

    Parameters
    ----------
    on_air : Transmission
        Transmission of the rows, [n, P].
    impairments : Impairments
        Carrier offsets, delays and clipping.

    Returns
    -------
    Tensor, float [S, P]
        The estimate.
    """
    sent, slot = on_air.signal, on_air.slot
    carrier, delay = noise.draw_offsets(impairments, slot.budget.shape[1], slot.round)
    on = on_air.row_gain.abs().amax(1) > 0
    delay = from_first(sent.cohort, sent.take_rows(delay), on)
    peak = sent.take_rows((impairments.clip[:, None] * slot.budget).sqrt())
    weight = torch.stack([1.0 - delay, delay], 1)
    if impairments.shifts_carrier or impairments.clips:
        chunks = _iterate_distorted(on_air, peak, sent.take_rows(carrier))
        sums = [[sent.sum(weight, part) for part in parts] for parts in chunks]
        quadratures = [torch.cat(parts, 2) for parts in zip(*sums, strict=True)]
    else:  # symbols are only scaled
        total = sum_quadratures(sent, on_air.row_gain[..., None] * weight[:, None], on_air.segments)
        stops = [on_air.segments.symbols] * (on_air.segments.halves - 1)
        quadratures = list(total.tensor_split(stops, 2))
    flat = []
    for quadrature in quadratures:
        own, late = quadrature.unbind(1)
        flat.append(own + torch.nn.functional.pad(late[:, :-1], (1, 0)))
    added = noise.draw_noise(impairments.streams, sent, slot.round)
    added = added * on_air.expand(on_air.noise_std)
    return torch.cat(flat, 1)[:, : sent.num_coordinates] + added


def _iterate_distorted(
    on_air: Transmission, peak: Tensor, carrier: Tensor
) -> Iterator[list[Tensor]]:
    """Yield one or two quadratures [n, C] as received, without noise, for chunks of channel uses.

    `peak` [n] is the largest magnitude that a row transmits, inf without clipping, and `carrier`
    [n] its carrier frequency offset in cycles per symbol.
    """
    sent, segments, factor = on_air.signal, on_air.segments, on_air.row_gain
    sent_with = sent.take_rows(on_air.scalars.p.abs().mT) * on_air.scale[:, None]
    sent_with = sent_with.to(sent.x.dtype)
    column, halves = segments.index_segments(sent.x.device), segments.parts(sent.x)
    width = max(1, min(segments.symbols, CHUNK // max(1, len(sent.x))))
    step = carrier.double()[:, None]
    turns = _rotation(step * torch.arange(width, device=column.device), factor.dtype)
    for first in range(0, segments.symbols, width):
        stop = min(first + width, segments.symbols)
        q = column[first:stop] if len(segments.bounds) > 1 else slice(None)
        # a second quadrature may be one symbol short
        parts = [half[:, first:stop] for half in halves]
        parts = [torch.nn.functional.pad(p, (0, stop - first - p.shape[1])) for p in parts]
        start = _rotation(step * first, factor.dtype)
        gain = factor[:, q] * start * turns[:, : stop - first]
        # neither hypot nor a quotient with an infinite numerator: their gradients are NaN
        size = (parts[0] if len(parts) == 1 else torch.complex(*parts)).abs()
        over = size * sent_with[:, q] / peak[:, None]
        parts = [part / over.clamp_min(1.0) for part in parts]
        if len(parts) == 1:
            yield [gain.real * parts[0]]
        else:
            yield [
                gain.real * parts[0] - gain.imag * parts[1],
                gain.real * parts[1] + gain.imag * parts[0],
            ]


def _rotation(turns: Tensor, dtype: torch.dtype) -> Tensor:
    """Return exp(2 pi j turns), given turns in double precision."""
    angle = turns.frac() * (2.0 * math.pi)
    return torch.polar(torch.ones_like(angle), angle).to(dtype)


def from_first(cohort: Cohort, delay: Tensor, on: Tensor) -> Tensor:
    """Return delays [n] relative to the trial's earliest device on air; 0 for silent devices."""
    earliest = delay.new_full((cohort.num_trials,), math.inf)
    earliest = earliest.scatter_reduce(0, cohort.trial, delay.where(on, math.inf), "amin")
    return torch.where(on, delay - earliest[cohort.trial], 0.0)
