"""Send bits at full power on channel uses of each device's own, by TDMA or OFDMA.

TDMA gives a device the whole band for a while, OFDMA 1/n of the band for the whole slot: the same
power in less noise, so n times the signal-to-noise ratio. An update arrives whole or, where its
rate was above what the channel carries, not at all. By default devices take turns at the Shannon
rate of their channel, free of error. The SNR is that after maximum-ratio combining of the server's
antennas, and the rate is the mean over sub-carriers and over the coherence blocks that so many
channel uses last as the payload has reals. Neither the receiver nor the power policy plays a part.

A channel use carries at most rate_factor log2(1 + SNR / gap) bits. Rates are chosen by the
estimate; a device whose rate is above what its true channel carries has spent its time and energy,
but its update is lost: it is left out of the mean, and the weights are normalised over what
arrived. A device whose energy cannot pay for all its channel uses cannot finish its packet: it
stays silent and keeps what it has. So does one that believes in less than `MIN_RATE`, whatever
the rule for rates: it has no link; and one below `gain_threshold`, which saves its power for other
rounds. All had something to send, so they count where the band or a
slot is shared out, and they have sent their pilots. One that crashes has spent the channel uses up
to there, and its packet is lost. Of a packet that is sent twice the server drops the copy by its
sequence number.
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
"""A rate above what is carried by less than this share is one that equals it."""


@dataclass(frozen=True)
class Load:
    """Hold what each device has to send over the uplink groups of a delivery.

    on_air: [S, K] bool. bits, reals, blocks: [S, K]. budget: [S, K] power. senders: [S, 1], how
    many devices send, at least 1. parts: [S, 1], of the band, of which a device has one.
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
    """Hold how each device sends its load, [S, K].

    symbols: its channel uses, 0 if it is silent. bits: sent. sends: bool. rate: bits a channel use.
    scheme: int64 place in the table of schemes. depth: bits a real, where they are fitted to the
    slot.
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
        """Return a device's time on air [S, K], in channel uses of the whole band."""
        return self.symbols * self.load.parts

    @property
    def cost(self) -> Tensor:
        """Return the energy of a device's packet [S, K], radiated and drawn by its circuits."""
        circuits, power = self.load.delivery.limits.energy_per_symbol, self.load.budget
        return self.time * (power if circuits is None else power + circuits)

    def times(self, uses: Tensor) -> Turns:
        """Return the turns with so many times their channel uses, [S, K]."""
        return replace(self, symbols=self.symbols * uses, bits=self.bits * uses)


class Digital(Transport):
    supports_snr_growth: ClassVar[bool] = True
    provides: ClassVar[frozenset[str]] = frozenset({"mean", "each"})
    counts: ClassVar[Counts] = "all"

    class Settings(Transport.Settings):
        name: Literal["digital"] = "digital"
        access: Literal["tdma", "ofdma"] = Field(
            "tdma",
            description="devices take turns on the whole band, or all n that send have a share "
            "1/n of it at the same time: with the same power in it the SNR is n times higher, and "
            "the slot lasts as long as the slowest needs",
        )
        rate: Literal["shannon", "mcs"] = Field(
            "shannon",
            description="log2(1 + SNR) bits a channel use, or the modulation and coding schemes "
            "of 3GPP TS 38.214",
        )
        rate_factor: float = declare_stackable(
            1.0, gt=0, le=1, description="share of the Shannon rate that is reached"
        )
        snr_gap_db: Decibels = declare_stackable(
            0.0, ge=0, description="implementation gap: the SNR counts as so much lower"
        )
        margin_db: Decibels = declare_stackable(
            0.0,
            ge=0,
            description="devices choose their rate as if the SNR that they believe in were so "
            "much lower, which leaves room for errors of the estimate",
        )
        gain_threshold: float = declare_stackable(
            0.0,
            ge=0,
            description="g_th: a device that believes in a lower |h|^2 as a slot begins (mean over "
            "antennas and sub-carriers, path loss aside) is silent, and sends in all other rounds "
            "at the power that this saves, P / Pr(|h|^2 >= g_th): the budget is then one on the "
            "average over fading; 0 for none",
        )
        outage: bool = Field(
            True,
            description="a rate chosen by the estimate that is above what the true channel "
            "carries loses the update (never with perfect CSI and rate shannon); false: "
            "retransmissions reach the rate of the true channel, and nothing is lost",
        )
        mcs_table: Literal["64qam", "256qam"] = Field(
            "64qam", description="table 5.1.3.1-1 or 5.1.3.1-2 of TS 38.214"
        )
        mcs_index: int | None = Field(
            None,
            ge=0,
            description="scheme of all devices; without it each takes the fastest that its "
            "estimate supports, and is silent if it supports none",
        )
        coding: Literal["ideal", "ldpc"] = Field(
            "ideal",
            description="codes that just reach the rate, or the payload's real bits through 5G "
            "LDPC, QAM and noise at the SNR of the device (slow; needs rate mcs and codec uniform "
            "or qsgd)",
        )
        on_block_error: Literal["drop", "keep"] = Field(
            "drop",
            description="what a wrong LDPC block does: the update is lost, or its bits are taken "
            "as they are; ranges and norms beside the words arrive right",
        )
        max_symbols: float = declare_stackable(
            0.0,
            ge=0,
            description="channel uses of the whole band that a round may take, shared evenly by "
            "the devices that have something to send; 0 for no bound. Over the air takes one for "
            "each real of a payload, or half with quadrature; a second has as many as bandwidth_hz",
        )
        over_budget: Literal["drop", "quantise"] = Field(
            "drop",
            description="a device whose bits do not fit its share of max_symbols is silent; or "
            "each sends with as many whole bits a real (1 to 16, in place of the codec's) as fit, "
            "rounded stochastically between each block's extremes",
        )

        def find_conflicts(self) -> Iterator[str]:
            if self.mcs_index is not None:
                most = len(MCS_TABLES[self.mcs_table]) - 1
                if self.rate != "mcs":
                    yield f"mcs_index ({self.mcs_index}) needs rate: mcs"
                if self.mcs_index > most:
                    yield (
                        f"mcs_index: got {self.mcs_index}, but table {self.mcs_table} ends at "
                        f"{most}"
                    )
            if self.coding == "ldpc":
                if self.rate != "mcs":
                    yield (
                        "coding: 'ldpc' takes its modulation and code rate from a scheme; set "
                        "rate: mcs"
                    )
                if not self.outage:
                    yield "outage: false needs coding: ideal; LDPC blocks fail or do not"
                if self.over_budget == "quantise":
                    yield "over_budget: 'quantise' needs coding: ideal"
            elif self.on_block_error == "keep":
                yield "on_block_error: 'keep' needs coding: ldpc"
            if self.over_budget == "quantise" and not self.max_symbols:
                yield "over_budget: 'quantise' needs max_symbols, the bound to fit into"

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
        self._saved = None  # [S, K], what a budget is multiplied with
        if bool((self._least > 0).any()):
            share = statistics.prob_unit_gain_above(self._least)
            self._saved = torch.where(share > 0, 1.0 / share, 1.0)

    def get_access_plan(self) -> OrthogonalUplink:
        """Return what devices know beforehand. An update counts as one block as large as what the
        device received."""
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
        """Add up what each device has to send, [S, K]."""
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
        """Reckon what the channels carry, with the power that is in a device's own band."""
        delivery = load.delivery
        power = load.budget * delivery.channel.gain * load.parts
        reals = sum(sent.num_coordinates for sent in delivery.uplink)
        return self._capacity.links(delivery.channel, power, reals, delivery.round)

    def _turns(self, load: Load, links: Links) -> Turns:
        """Give each device its channel uses, [S, K]: what its bits take at its rate. Who has no
        link, supports no rate, or does not fit its share of `max_symbols`, is silent."""
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
        """Choose bits a channel use and the scheme that has them; 0 where no scheme does."""
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
        """Keep the turns of those who can pay for their packet."""
        energy = turns.load.delivery.limits.energy_budget
        if energy is None:
            return turns
        sends = turns.sends & (turns.cost <= energy * (1.0 + ROUNDING))
        return replace(turns.times(sends), sends=sends)

    def _carry_packets(self, turns: Turns, links: Links) -> tuple[Mapping[int, Group], Tensor]:
        """Carry the packets over the channel.

        Returns
        -------
        The uplink groups that are not read as they were sent, by index, and whose update arrives,
        [S, K] bool.
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
        """Return the turns with repeated packets, up to the crash, and whose packet arrives whole,
        [S, K] bool. A repetition was not planned: it goes beyond `max_symbols`; but a device that
        cannot pay for it does not send it."""
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
        """Add up bits, channel uses, energy and pilots; arrived: [S, K] bool."""
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
