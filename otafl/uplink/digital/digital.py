"""Packets of bits at full power on channel uses of each device's own, by TDMA or OFDMA.

TDMA gives a device the whole band for part of the slot, OFDMA 1/n of the band for the whole slot:
the same power in less noise, so n times the signal-to-noise ratio. By default devices take turns at
the Shannon rate of their channel, without errors. The SNR is that after maximum-ratio combining of
the server's antennas. The rate is the mean over sub-carriers and over the coherence blocks that as
many channel uses last as the payload has coordinates. Receiver and power policy have no effect.

A channel use carries at most rate_factor log2(1 + SNR / gap) bits, and devices choose their rate by
the estimated SNR. If the rate is above what the true channel carries, the device has spent its time
and energy, but its update is lost. The update is left out of the mean, and the weights are
normalised over the delivered updates.

A device is silent and keeps its update if

- its energy does not suffice for all channel uses of its packet,
- its estimated rate is below `MIN_RATE`, so that it has no link,
- its channel is below `gain_threshold`, which saves its power for other rounds.

Such devices still count when the band or a slot is divided, and they have sent their pilots. A
device that crashes has spent the channel uses before the crash, and its packet is lost. If a packet
is sent twice, the server drops the copy by its sequence number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.codecs.base import Codec
from otafl.core.constants import get_constant
from otafl.core.contracts import MIN_RATE, ChannelStatistics, Group, Hyper, LinkBudget
from otafl.core.rng import Streams
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.csi.base import Csi
from otafl.uplink.base import Counts, OrthogonalUplink, Transport
from otafl.uplink.delivery import Delivery
from otafl.uplink.digital.capacity import Capacity, Links
from otafl.uplink.digital.coded_bits import CodedBits
from otafl.uplink.digital.fitted_bits import fitting_depth, quantise_to_fit
from otafl.uplink.digital.mcs import MCS_TABLES
from otafl.uplink.digital.packets import hand_over
from otafl.uplink.impairments.impairments import Impairments

ROUNDING = 1e-5
"""Relative difference below which a rate counts as equal to what the channel carries."""


@dataclass(frozen=True)
class Load:
    """Data that each device has to send over the uplink groups of a delivery.

    Parameters
    ----------
    delivery : Delivery
        The payload.
    on_air : Tensor, bool [S, K]
        Transmitters.
    bits, reals, blocks : Tensor, float [S, K]
        Bits, coordinates and tensors of a device's update.
    budget : Tensor, float [S, K]
        Power budget.
    senders : Tensor, float [S, 1]
        Number of transmitters, at least 1.
    parts : Tensor, float [S, 1]
        Number of parts of the band, of which a device has one.
    """

    delivery: Delivery
    on_air: Tensor
    bits: Tensor
    reals: Tensor
    blocks: Tensor
    budget: Tensor
    senders: Tensor
    parts: Tensor


@dataclass(frozen=True)
class Turns:
    """Channel uses and rates with which each device sends its load.

    Parameters
    ----------
    load : Load
        Data to send.
    symbols : Tensor, float [S, K]
        Channel uses of a device's part of the band, 0 if it is silent.
    bits : Tensor, float [S, K]
        Bits sent.
    sends : Tensor, bool [S, K]
        Devices that send.
    rate : Tensor, float [S, K]
        Bits per channel use.
    scheme : Tensor, int64 [S, K]
        Position in the table of schemes.
    depth : Tensor, float [S, K], or None
        Bits per coordinate, if they are fitted to the slot.
    """

    load: Load
    symbols: Tensor
    bits: Tensor
    sends: Tensor
    rate: Tensor
    scheme: Tensor
    depth: Tensor | None

    @property
    def time(self) -> Tensor:
        """Time on air of each device [S, K], in channel uses of the whole band."""
        return self.symbols * self.load.parts

    @property
    def cost(self) -> Tensor:
        """Energy of each device's packet [S, K], radiated and consumed by its circuits."""
        circuits, power = self.load.delivery.limits.energy_per_symbol, self.load.budget
        return self.time * (power if circuits is None else power + circuits)

    def times(self, uses: Tensor) -> Turns:
        """Return the turns with their channel uses multiplied by `uses` [S, K]."""
        return replace(self, symbols=self.symbols * uses, bits=self.bits * uses)


class Digital(Transport):
    """Orthogonal digital transmission. Study: `scenarios/studies/analog_vs_digital.yaml`."""

    supports_snr_growth: ClassVar[bool] = True
    provides: ClassVar[frozenset[str]] = frozenset({"mean", "each"})
    counts: ClassVar[Counts] = "all"

    class Settings(Transport.Settings):
        name: Literal["digital"] = "digital"
        access: Literal["tdma", "ofdma"] = Field(
            "tdma",
            description="division of the channel: devices take turns on the whole band (tdma), or "
            "each of the n transmitters has 1/n of the band at the same time, with n times the SNR "
            "(ofdma); the slot then lasts as long as the slowest device needs",
        )
        rate: Literal["shannon", "mcs"] = Field(
            "shannon",
            description="bits per channel use: log2(1 + SNR), or those of the modulation and "
            "coding schemes of 3GPP TS 38.214",
        )
        rate_factor: float = declare_stackable(
            1.0, gt=0, le=1, description="fraction of the Shannon rate that is reached"
        )
        snr_gap_db: Decibels = declare_stackable(
            0.0, ge=0, description="implementation gap in dB, by which the SNR is reduced"
        )
        margin_db: Decibels = declare_stackable(
            0.0,
            ge=0,
            description="margin in dB for errors of the estimate, by which devices reduce the "
            "estimated SNR when they choose their rate",
        )
        gain_threshold: float = declare_stackable(
            0.0,
            ge=0,
            description="g_th, smallest estimated |h|^2 of a transmitter at the start of a slot "
            "(mean over antennas and sub-carriers, without path loss); a device below it is "
            "silent, and in other rounds sends with P / Pr(|h|^2 >= g_th), so that the budget "
            "holds on average over fading; by default there is none",
        )
        outage: bool = Field(
            True,
            description="whether an update is lost if its rate, chosen by the estimate, is above "
            "what the true channel carries (never with perfect CSI and rate shannon); if false, "
            "retransmissions reach the rate of the true channel, and no update is lost",
        )
        mcs_table: Literal["64qam", "256qam"] = Field(
            "64qam", description="table 5.1.3.1-1 or 5.1.3.1-2 of TS 38.214"
        )
        mcs_index: int | None = Field(
            None,
            ge=0,
            description="scheme of all devices; if not given, each device uses the fastest that "
            "its estimate supports, and is silent if it supports none",
        )
        coding: Literal["ideal", "ldpc"] = Field(
            "ideal",
            description="channel code: ideal codes that reach the rate, or the payload's real bits "
            "in 5G LDPC, QAM and noise at the SNR of the device (slow; needs rate mcs and codec "
            "uniform or qsgd)",
        )
        on_block_error: Literal["drop", "keep"] = Field(
            "drop",
            description="treatment of an update with a wrong LDPC block: it is lost, or its bits "
            "are used as decoded; ranges and norms besides the words have no errors",
        )
        max_symbols: float = declare_stackable(
            0.0,
            ge=0,
            description="channel uses of the whole band that a round may take, divided evenly "
            "among the transmitters; no bound by default. Over the air a payload takes one per "
            "coordinate, or half of that with quadrature; a second has bandwidth_hz of them",
        )
        over_budget: Literal["drop", "quantise"] = Field(
            "drop",
            description="treatment of a device whose bits do not fit its share of max_symbols: it "
            "is silent, or each device sends as many whole bits per coordinate (1 to 16, instead "
            "of the codec's) as fit, rounded stochastically between each tensor's extremes",
        )

        def find_conflicts(self) -> Iterator[str]:
            if self.mcs_index is not None:
                most = len(MCS_TABLES[self.mcs_table]) - 1
                if self.rate != "mcs":
                    yield f"mcs_index: got {self.mcs_index}, which needs rate: mcs"
                if self.mcs_index > most:
                    yield (
                        f"mcs_index: got {self.mcs_index}, but table {self.mcs_table} ends at "
                        f"{most}; use at most {most}"
                    )
            if self.coding == "ldpc":
                if self.rate != "mcs":
                    yield (
                        "coding: 'ldpc' needs a modulation and coding scheme, got rate: "
                        f"{self.rate}; set rate: mcs"
                    )
                if not self.outage:
                    yield "outage: false needs coding: ideal, because LDPC blocks can fail"
                if self.over_budget == "quantise":
                    yield "over_budget: 'quantise' needs coding: ideal"
            elif self.on_block_error == "keep":
                yield "on_block_error: 'keep' needs coding: ldpc"
            if self.over_budget == "quantise" and not self.max_symbols:
                yield "over_budget: 'quantise' needs max_symbols, which is not set"

        @property
        def has_access_plan(self) -> bool:
            simple = self.rate == "shannon" and self.over_budget == "drop"
            return simple and not self.gain_threshold

    def __init__(
        self,
        settings: Settings,
        *,
        budget: LinkBudget,
        csi: Csi,
        statistics: ChannelStatistics,
        impairments: Impairments,
        codec: Codec,
        streams: Streams,
        hyper: Hyper,
    ) -> None:
        self.settings, self.budget, self.hyper = settings, budget, hyper
        self.csi, self.codec, self.streams = csi, codec, streams
        self.impairments, self.statistics = impairments, statistics
        self._table = MCS_TABLES[settings.mcs_table]
        self._capacity = Capacity(settings, hyper, csi, impairments)
        self._coded = None
        if settings.coding == "ldpc":
            self._coded = CodedBits(self._table, codec, streams)
        most = hyper["max_symbols"][:, None]
        self._most = most.where(most > 0, torch.inf)
        self._check_bound = bool((most > 0).any())
        self._least = hyper["gain_threshold"]
        self._saved = None  # [S, K], factor of a budget
        if bool((self._least > 0).any()):
            share = statistics.prob_unit_gain_above(self._least)
            self._saved = torch.where(share > 0, 1.0 / share, 1.0)

    def get_access_plan(self) -> OrthogonalUplink:
        """Return the devices' prior knowledge of the uplink.

        An update counts as one tensor of the size that the device received.
        """
        hyper, codec = self.hyper, self.codec
        gap_db = hyper["snr_gap_db"].double()
        if self.settings.outage:
            gap_db = gap_db + hyper["margin_db"].double()

        def bits(reals: int) -> float:
            return codec.count_bits(Group({"update": torch.empty(1, reals, device="meta")}))

        return OrthogonalUplink(
            access=self.settings.access,
            gap=db_to_linear(gap_db).cpu().numpy(),
            rate_factor=hyper["rate_factor"].double().cpu().numpy(),
            bits=bits,
            csi=self.csi,
        )

    def transmit(self, delivery: Delivery) -> None:
        """Send each device's packet, and give the server the mean of the delivered updates."""
        load = self._load(delivery)
        links = self._links(load)
        turns = self._drop_unpaid(self._turns(load, links))
        read, arrived = self._carry_packets(turns, links)
        turns, arrived = self._interrupt(turns, arrived)
        self._charge(turns, arrived, links.blocks)
        limits, lossless = (
            delivery.limits,
            links.sure and self._coded is None and not self._check_bound,
        )
        unlimited = limits.energy_budget is None and limits.sent_fraction is None
        whole = lossless and unlimited and turns.sends.equal(load.on_air)
        hand_over(delivery, read, None if whole else arrived)

    def _load(self, delivery: Delivery) -> Load:
        """Compute the data of each device, [S, K]."""
        like, bits_of = self.hyper["rate_factor"], self.codec.count_bits
        uplink = delivery.uplink
        on_air = torch.stack([sent.transmitter_mask for sent in uplink])
        share = torch.stack([sent.transmitted_share for sent in uplink]).to(like)
        sizes = tuple(
            (bits_of(sent.group), sent.num_coordinates, len(sent.shapes)) for sent in uplink
        )
        size = get_constant(sizes, like.dtype, like.device)
        bits, reals = torch.einsum("gc,gsk->csk", size[:, :2], share)
        sends, budget = on_air.any(0), delivery.power_budget
        senders = sends.sum(1, keepdim=True).clamp_min(1).to(bits.dtype)
        return Load(
            delivery=delivery,
            on_air=sends,
            bits=bits,
            reals=reals,
            blocks=torch.einsum("g,gsk->sk", size[:, 2], on_air.to(size.dtype)),
            budget=budget if self._saved is None else budget * self._saved,
            senders=senders,
            parts=senders if self.settings.access == "ofdma" else torch.ones_like(senders),
        )

    def _links(self, load: Load) -> Links:
        """Compute the links, with the power in each device's own band."""
        delivery = load.delivery
        power = load.budget * delivery.channel.gain * load.parts
        reals = sum(sent.num_coordinates for sent in delivery.uplink)
        return self._capacity.links(delivery.channel, power, reals, delivery.round)

    def _turns(self, load: Load, links: Links) -> Turns:
        """Compute the channel uses of each device, [S, K], from its bits and its rate.

        A device without a link or a supported rate, or whose bits do not fit its share of
        `max_symbols`, is silent.
        """
        rate, scheme = self._rates(links)
        share = self._most / load.senders
        bits, depth = load.bits, None
        sends = load.on_air & (rate > 0) & (links.believed >= MIN_RATE)
        if self._saved is not None:
            sends = sends & (links.strength >= self._least[:, None])
        if self.settings.over_budget == "quantise":
            depth, bits = fitting_depth(share * rate, load.reals, load.blocks)
            sends = sends & (depth >= 1)
        if self._coded is None:
            symbols = bits / rate.clamp_min(MIN_RATE)
        else:
            symbols = torch.zeros_like(bits)
            for sent in load.delivery.uplink:
                own = self._coded.symbols(sent.group)
                symbols = symbols + bits.new_tensor(own)[scheme] * sent.transmitter_mask
        sends = sends & (symbols <= share * (1.0 + ROUNDING))
        return Turns(load, symbols * sends, bits * sends, sends, rate, scheme, depth)

    def _rates(self, links: Links) -> tuple[Tensor, Tensor]:
        """Choose the bits per channel use and the scheme; 0 if no scheme is supported."""
        scheme = torch.full_like(links.believed, self.settings.mcs_index or 0, dtype=torch.int64)
        if self.settings.rate == "shannon":
            return links.believed, scheme
        efficiency = links.believed.new_tensor([mcs.efficiency for mcs in self._table])
        rate = efficiency[scheme]
        if self.settings.mcs_index is None:
            # the fastest supported, not the last: 64-QAM's slowest is below 16-QAM's fastest
            supported = efficiency <= links.believed[..., None] * (1.0 + ROUNDING)
            rate, scheme = (efficiency * supported).max(-1)
        if not self.settings.outage:
            rate = torch.minimum(rate.where(rate > 0, efficiency.amin()), links.carried)
        return rate, scheme

    def _drop_unpaid(self, turns: Turns) -> Turns:
        """Keep the turns of devices with the energy for their packet."""
        energy = turns.load.delivery.limits.energy_budget
        if energy is None:
            return turns
        sends = turns.sends & (turns.cost <= energy * (1.0 + ROUNDING))
        return replace(turns.times(sends), sends=sends)

    def _carry_packets(self, turns: Turns, links: Links) -> tuple[Mapping[int, Group], Tensor]:
        """Carry the packets over the channel.

        Returns
        -------
        read : mapping of int to Group
            Groups that are not received as they were sent, by index.
        arrived : Tensor, bool [S, K]
            Devices whose update is delivered.
        """
        delivery, arrived = turns.load.delivery, turns.sends
        if self._coded is not None:
            scheme = turns.scheme.where(arrived, -1)
            read, right = self._coded.send(delivery, scheme, links.snr)
            if self.settings.on_block_error == "keep":
                return read, arrived
            return {}, arrived & right
        if not links.sure:
            arrived = arrived & (turns.rate <= links.carried * (1.0 + ROUNDING))
        if turns.depth is None:
            return {}, arrived
        return quantise_to_fit(delivery, turns.depth, self.streams), arrived

    def _interrupt(self, turns: Turns, arrived: Tensor) -> tuple[Turns, Tensor]:
        """Return the turns with repeated packets, up to the crash, and the delivered packets.

        A repetition was not planned, so it may exceed `max_symbols`, but a device without the
        energy for it does not send it.
        """
        limits, uses = turns.load.delivery.limits, torch.ones_like(turns.symbols)
        if limits.num_copies is None and limits.sent_fraction is None:
            return turns, arrived
        if limits.num_copies is not None:
            uses = limits.num_copies
            if limits.energy_budget is not None:
                paid = (
                    limits.energy_budget * (1.0 + ROUNDING) / turns.cost.clamp_min(1e-30)
                ).floor()
                uses = torch.minimum(uses, paid.clamp_min(1.0))
        if limits.sent_fraction is not None:
            uses = uses * limits.sent_fraction
        return turns.times(uses), arrived & (uses >= 1.0)

    def _charge(self, turns: Turns, arrived: Tensor, blocks: int) -> None:
        """Add bits, channel uses, energy and pilots to the tally; arrived: [S, K] bool."""
        load, time, tally = turns.load, turns.time, turns.load.delivery.tally
        pilots = float(self.csi.num_pilot_symbols * blocks)
        tally.add(
            bits=turns.bits.sum(1),
            symbols=time.sum(1) if self.settings.access == "tdma" else time.amax(1),
            energy=time * load.budget,
            sent=time,
            side=load.on_air.sum(1).to(time.dtype) * pilots,
        )
        tally.note(on_air=arrived)
