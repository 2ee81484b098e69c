"""Packets of bits at full power on channel uses of each device's own, by TDMA or OFDMA.

TDMA gives a device the whole band for part of the slot, OFDMA 1/n of the band for the whole slot:
the same power in less noise, so n times the signal-to-noise ratio. By default devices take turns at
the Shannon rate of their channel, without errors. The SNR is that after maximum-ratio combining of
the server's antennas. The rate is the mean over sub-carriers and over the coherence blocks that as
many channel uses last as the payload has coordinates. Receiver and power policy have no effect.

A channel use carries at most log2(1 + SNR / gap) bits, and devices choose their rate by the
estimated SNR. If the rate is above what the true channel carries, the device has spent its time and
energy, but its update is lost (outage; never with perfect CSI and rate shannon). The update is left
out of the mean, and the weights are normalised over the delivered updates.

A device is silent and keeps its update if

- its energy does not suffice for all channel uses of its packet,
- its estimated rate is below `MIN_RATE`, so that it has no link,
- its estimated |h|^2 is below `gain_threshold` (truncation).

Without truncation a packet in a fade of gain g takes a time of about 1 / g, whose mean over
Rayleigh fading is infinite. The default threshold is that of truncated channel inversion, g_th =
0.1, an outage of 1 - exp(-g_th) = 9.5 %; outage probabilities of 10 % and below are usual for
delay-limited links (Tse and Viswanath 2005, section 5.4.1; Zhu, Wang, Huang 2020).

A truncated device saves its power for other rounds under `constraint: average`, so that |p|^2 =
P / Pr(|h|^2 >= g_th) in these. Under `constraint: peak` |p|^2 <= P holds in each round, as for
truncated channel inversion over the air. Silent devices have sent their pilots, and count when the
band or a slot is divided, except devices below the threshold under `shares: active`.

A device that crashes has spent the channel uses before the crash, and its packet is lost. If a
packet is sent twice, the server drops the copy by its sequence number.

A packet of b bits at received SNR rho in the whole band takes, in channel uses of the whole band,

    TDMA    t_k = b / log2(1 + rho_k),              slot  sum_k t_k,                             (1)
    OFDMA   t_k = n b / log2(1 + n rho_k),          slot  max_k t_k.                             (2)

For rho -> 0 both have t_k = b ln 2 / rho_k, so the slot of OFDMA is max_k(1 / rho_k) / sum_k(1 /
rho_k) of that of TDMA.

References
----------
Tse, Viswanath 2005, "Fundamentals of Wireless Communication", chapters 5 and 6.
Zhu, Wang, Huang 2020, "Broadband Analog Aggregation for Low-Latency Federated Edge Learning".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import MIN_RATE, NOISE_VARIANCE, Group
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.tensors import get_constant
from otafl.core.units import db_to_linear
from otafl.uplink.base import Counts, OrthogonalUplink, Parts, Transport
from otafl.uplink.delivery import Delivery
from otafl.uplink.digital.coded_bits import CodedBits
from otafl.uplink.digital.packets import (
    MCS_TABLE,
    ROUNDING,
    bits_a_use,
    compute_snr,
    fitting_depth,
    hand_over,
    quantise_to_fit,
    repeat_packets,
)
from otafl.uplink.inverse_probability import LossSettings, divide_weights, refuse


class Digital(Transport):
    """Orthogonal digital transmission.

    Study: `studies/analog_vs_digital/analog_vs_digital.yaml`.
    """

    supports_snr_growth: ClassVar[bool] = True
    provides: ClassVar[frozenset[str]] = frozenset({"mean", "each"})
    counts: ClassVar[Counts] = "all"

    class Settings(LossSettings):
        idle_without: ClassVar = {"constraint": "gain_threshold", "shares": "gain_threshold"}

        name: Literal["digital"] = "digital"
        access: Literal["tdma", "ofdma"] = "tdma"
        """division of the channel: devices take turns on the whole band (tdma), or each of the n
        transmitters has 1/n of the band at the same time, with n times the SNR (ofdma); the slot
        then lasts as long as the slowest device needs"""
        rate: Literal["shannon", "mcs"] = "shannon"
        """bits per channel use: log2(1 + SNR), or those of the modulation and coding schemes of
        3GPP TS 38.214, table 5.1.3.1-1"""
        snr_gap_db: Decibels = declare_stackable(0.0, ge=0)
        """implementation gap in dB, by which the SNR is reduced"""
        margin_db: Decibels = declare_stackable(0.0, ge=0)
        """margin in dB for errors of the estimate, by which devices reduce the estimated SNR when
        they choose their rate"""
        gain_threshold: float = declare_stackable(0.1, ge=0)
        """g_th, smallest estimated |h|^2 of a transmitter at the start of a slot (mean over
        antennas and sub-carriers, without path loss); a device below it is silent, as one of power
        policy tci: over Rayleigh fading, by default, with a probability of 10 %. 0: all transmit
        in any fade, so that the airtime over Rayleigh fading has no finite mean"""
        constraint: Literal["average", "peak"] = "average"
        """power constraint of devices with a gain_threshold: the budget holds on average over
        fading, so that a device at or above the threshold sends with P / Pr(|h|^2 >= g_th)
        (average), or in each round, so that it sends with P (peak)"""
        shares: Literal["all", "active"] = "all"
        """devices that share the band (ofdma) and max_symbols evenly: all transmitters, or only
        those at or above gain_threshold (active), which the server then has to know before it
        grants the band"""
        mcs_index: int | None = Field(None, ge=0, le=len(MCS_TABLE) - 1)
        """scheme of all devices; if not given, each device uses the fastest that its estimate
        supports, and is silent if it supports none"""
        coding: Literal["ideal", "ldpc"] = "ideal"
        """channel code: ideal codes that reach the rate, or the payload's real bits in 5G LDPC, QAM
        and noise at the SNR of the device, where an update with a wrong block is lost (slow; needs
        rate mcs and codec uniform or qsgd)"""
        max_symbols: float = declare_stackable(0.0, ge=0)
        """channel uses of the whole band that a round may take, divided evenly among the
        transmitters; no bound by default. Over the air a payload takes one per coordinate, or half
        of that with quadrature; a second has bandwidth_hz of them"""
        over_budget: Literal["drop", "quantise"] = "drop"
        """treatment of a device whose bits do not fit its share of max_symbols: it is silent, or
        each device sends as many whole bits per coordinate (1 to 16, instead of the codec's) as
        fit, rounded stochastically between each tensor's extremes"""

        def is_off(self, key: str) -> bool:
            return not self.gain_threshold if key == "gain_threshold" else super().is_off(key)

        def find_conflicts(self) -> Iterator[str]:
            if self.mcs_index is not None and self.rate != "mcs":
                yield f"mcs_index: got {self.mcs_index}, which needs rate: mcs"
            if self.coding == "ldpc":
                if self.rate != "mcs":
                    yield (
                        "coding: 'ldpc' needs a modulation and coding scheme, got rate: "
                        f"{self.rate}; set rate: mcs"
                    )
                if self.over_budget == "quantise":
                    yield "over_budget: 'quantise' needs coding: ideal"
            if self.over_budget == "quantise" and not self.max_symbols:
                yield "over_budget: 'quantise' needs max_symbols, which is not set"

        def list_notes(self, scenario: Any) -> Iterator[str]:
            divides = self.access == "ofdma" or self.max_symbols
            if self.shares == "active" and self.gain_threshold and not divides:
                yield (
                    "transport.shares: 'active' without effect, because tdma without max_symbols "
                    "divides nothing; use access: ofdma, or set max_symbols"
                )

        @property
        def has_access_plan(self) -> bool:
            simple = self.rate == "shannon" and self.over_budget == "drop"
            plain = self.constraint == "peak" and self.shares == "all"
            return simple and (plain or not self.gain_threshold)

        @property
        def power_constraint(self) -> str:
            return self.constraint if self.gain_threshold else "peak"

    def __init__(self, settings: Settings, parts: Parts) -> None:
        super().__init__(settings, parts)
        alignment, hyper = self.alignment, parts.hyper
        self.hyper, self.csi, self.codec = hyper, alignment.csi, parts.codec
        self.streams = parts.streams
        self._gap = db_to_linear(hyper["snr_gap_db"])[:, None]
        self._margin = db_to_linear(hyper["margin_db"])[:, None]
        self._coded = None
        if settings.coding == "ldpc":
            self._coded = CodedBits(MCS_TABLE, self.codec, self.streams)
        most = hyper["max_symbols"][:, None]
        self._most = most.where(most > 0, torch.inf)
        self._least = hyper["gain_threshold"]
        self._truncates = bool((self._least > 0).any())
        self._saved = None  # [S, K], factor of a budget
        if self._truncates and settings.constraint == "average":
            share = alignment.statistics.prob_unit_gain_above(self._least)
            self._saved = torch.where(share > 0, 1.0 / share, 1.0)

    def get_access_plan(self) -> OrthogonalUplink:
        """Return the devices' prior knowledge of the uplink.

        An update counts as one tensor of the size that the device received.
        """
        hyper, codec = self.hyper, self.codec
        gap_db = hyper["snr_gap_db"].double() + hyper["margin_db"].double()

        def bits(num_coordinates: int) -> float:
            return codec.count_bits(
                Group({"update": torch.empty(1, num_coordinates, device="meta")})
            )

        return OrthogonalUplink(
            access=self.settings.access,
            gap=db_to_linear(gap_db).cpu().numpy(),
            bits=bits,
            csi=self.csi,
        )

    def transmit(self, delivery: Delivery) -> None:
        """Send each device's packet, and give the server the mean of the delivered updates."""
        settings, uplink, limits = self.settings, delivery.uplink, delivery.limits
        h = delivery.channel.extend_to(max(1, sum(sent.num_coordinates for sent in uplink)))
        h_hat = self.csi.estimate(h, delivery.channel.gain, delivery.round)
        on_air = torch.stack([sent.transmitter_mask for sent in uplink]).any(0)
        active = on_air
        if self._truncates:
            strength = h_hat[:, :, :, 0].abs().square().flatten(2).mean(2)
            active = on_air & (strength >= self._least[:, None])
        counted = active if settings.shares == "active" else on_air
        sharers = counted.sum(1, keepdim=True).clamp_min(1).to(self._most.dtype)
        parts = sharers if settings.access == "ofdma" else torch.ones_like(sharers)
        budget = delivery.power_budget
        if self._saved is not None:
            budget = budget * self._saved
        power = budget * delivery.channel.gain * parts  # in each device's own band
        snr, believed = self._compute_snr(h, h_hat, power, delivery.round)
        rate, scheme = self._choose_rates(believed)
        most = self._most / sharers
        symbols, bits, depth = self._count_symbols(delivery, most, rate, scheme)
        sends = active & (rate > 0) & (believed >= MIN_RATE) & (symbols <= most * (1.0 + ROUNDING))
        if depth is not None:
            sends = sends & (depth >= 1)
        time = symbols * parts  # in channel uses of the whole band
        circuits = limits.energy_per_symbol
        cost = time * (budget if circuits is None else budget + circuits)
        if limits.energy_budget is not None:
            sends = sends & (cost <= limits.energy_budget * (1.0 + ROUNDING))
        if settings.divides_by_probability:
            probability = self._compute_delivery_probability(delivery, bits / most, power, h)
            divide_weights(delivery, probability, settings, self.parts)
        if self._coded is None:
            arrived = sends & (rate <= bits_a_use(snr / self._gap[..., None]) * (1.0 + ROUNDING))
        else:
            flat_snr = torch.expm1(torch.log1p(snr).mean(-1))  # of the same capacity
            arrived = sends & self._coded.send(delivery, scheme.where(sends, -1), flat_snr)
        read = {} if depth is None else quantise_to_fit(delivery, depth, self.streams)
        uses, arrived = repeat_packets(limits, cost, arrived)
        time, bits = time * sends * uses, bits * sends * uses
        pilots = float(self.csi.num_pilot_symbols * h.shape[3])
        delivery.add(
            bits=bits.sum(1),
            symbols=time.sum(1) if settings.access == "tdma" else time.amax(1),
            energy=time * budget,
            sent=time,
            side=on_air.sum(1).to(time.dtype) * pilots,
            on_air=arrived,
        )
        # a GPU's host waits once to know it, and five times to select the rows that arrived
        whole = not (read or settings.divides_by_probability) and arrived.equal(on_air)
        hand_over(delivery, read, arrived, whole)

    def _compute_delivery_probability(
        self, delivery: Delivery, rate: Tensor, power: Tensor, h: Tensor
    ) -> Tensor:
        r"""Compute the probability [S, K] that a device sends its update.

        Parameters
        ----------
        delivery : Delivery
            The payload.
        rate : Tensor, float [S, K]
            Bits b of the update over the channel uses T B that it may take.
        power : Tensor, float [S, K]
            Mean received power over the noise.
        h : Tensor, complex [S, K, A, B, F]
            Channels.

        Notes
        -----
        A device sends if its gain is at least g_th and carries the rate, which is, with one antenna
        over Rayleigh fading,

        .. math::

            p = \exp(-\max(g_{th}, (2^{b / (T B)} - 1) / snr))
        """
        settings = self.settings.rate, self.settings.over_budget, self.settings.shares
        if settings != ("shannon", "drop", "all"):
            refuse("needs rate: shannon, over_budget: drop and shares: all")
        if h.shape[3] * h.shape[4] > 1 and bool((rate > 0).any()):
            refuse("knows the outages by max_symbols only over flat fading, constant in a slot")
        known = self.alignment.impairments.compute_known_noise(delivery.round)[:, None]
        needed = torch.expm1(rate * math.log(2.0)) * self._gap * self._margin * known
        least = needed / (NOISE_VARIANCE * h.shape[2] * power)
        return self.alignment.statistics.prob_unit_gain_above(least.maximum(self._least[:, None]))

    def _compute_snr(
        self, h: Tensor, h_hat: Tensor, power: Tensor, round: int
    ) -> tuple[Tensor, Tensor]:
        """Compute the true SNR [S, K, cells], and the estimated bits per channel use [S, K].

        `power` [S, K] is the mean received power in a device's own band over the noise in it.
        """
        impairments = self.alignment.impairments
        own = h_hat.flatten(3)
        combined = snr = power[..., None] * own.abs().square().sum(2)
        if h_hat is not h or impairments.adds_noise or impairments.grows:
            snr = compute_snr(h.flatten(3), own, power, impairments, round)
        known = impairments.compute_known_noise(round)[:, None] / NOISE_VARIANCE
        return snr, bits_a_use(combined / (known * self._gap * self._margin)[..., None])

    def _count_symbols(
        self, delivery: Delivery, most: Tensor, rate: Tensor, scheme: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Compute channel uses and bits of each device's update, and the bits of a coordinate.

        All are [S, K]. The last is None unless bits are fitted to the channel uses `most` [S, 1].
        """
        uplink, depth = delivery.uplink, None
        share = torch.stack([sent.transmitted_share for sent in uplink]).to(rate)
        sizes = tuple(
            (self.codec.count_bits(sent.group), sent.num_coordinates, len(sent.shapes))
            for sent in uplink
        )
        size = get_constant(sizes, rate.dtype, rate.device)
        bits, num_coordinates = torch.einsum("gc,gsk->csk", size[:, :2], share)
        if self.settings.over_budget == "quantise":
            sends = torch.stack([sent.transmitter_mask for sent in uplink]).to(rate)
            blocks = torch.einsum("g,gsk->sk", size[:, 2], sends)
            depth, bits = fitting_depth(most * rate, num_coordinates, blocks)
        if self._coded is None:
            return bits / rate.clamp_min(MIN_RATE), bits, depth
        symbols = torch.zeros_like(bits)
        for sent in uplink:
            own = self._coded.symbols(sent.group)
            symbols = symbols + bits.new_tensor(own)[scheme] * sent.transmitter_mask
        return symbols, bits, depth

    def _choose_rates(self, believed: Tensor) -> tuple[Tensor, Tensor]:
        """Choose the bits per channel use and the scheme; 0 if no scheme is supported."""
        scheme = torch.full_like(believed, self.settings.mcs_index or 0, dtype=torch.int64)
        if self.settings.rate == "shannon":
            return believed, scheme
        efficiency = believed.new_tensor([mcs.efficiency for mcs in MCS_TABLE])
        if self.settings.mcs_index is not None:
            return efficiency[scheme], scheme
        # the fastest supported, not the last: 64-QAM's slowest is below 16-QAM's fastest
        supported = efficiency <= believed[..., None] * (1.0 + ROUNDING)
        rate, scheme = (efficiency * supported).max(-1)
        return rate, scheme
