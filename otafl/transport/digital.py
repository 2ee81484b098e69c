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
stays silent and keeps what it has. One that crashes has spent the channel uses up to there, and its
packet is lost. Of a packet that is sent twice the server drops the copy by its sequence number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from otafl.core.contracts import (
    NO_LIMITS,
    ChannelState,
    Cohort,
    Group,
    Limits,
    LinkReport,
    Payload,
    Received,
)
from otafl.core.settings import stackable
from otafl.core.units import db_to_linear
from otafl.transport.base import Counts, LinkSetup, OrthogonalUplink, Transport
from otafl.transport.capacity import Capacity, Links
from otafl.transport.coded_bits import CodedBits
from otafl.transport.fitted_bits import bits_at, fitted, fitting_depth
from otafl.transport.mcs import MCS_TABLES
from otafl.transport.packets import gathered
from otafl.transport.report import Tally
from otafl.transport.superpose import Signal, signal

ROUNDING = 1e-5
"""A rate above what is carried by less than this share is one that equals it."""

Groups = Sequence[tuple[Group, Signal]]


@dataclass(frozen=True)
class Load:
    """Hold what each device has to send over the uplink groups.

    on_air: [S, K] bool. bits, reals, blocks: [S, K]. budget: [S, K] power. limits: of the slot.
    """

    on_air: Tensor
    bits: Tensor
    reals: Tensor
    blocks: Tensor
    budget: Tensor
    limits: Limits

    @property
    def senders(self) -> Tensor:
        """Return how many devices send, [S, 1], at least 1."""
        return self.on_air.sum(1, keepdim=True).clamp_min(1).to(self.bits.dtype)


@dataclass(frozen=True)
class Turns:
    """Hold how each device sends, [S, K].

    symbols: its channel uses, 0 if it is silent. bits: sent. sends: bool. rate: bits a channel use.
    scheme: int64 place in the table of schemes. depth: bits a real, where they are fitted to the
    slot.
    """

    symbols: Tensor
    bits: Tensor
    sends: Tensor
    rate: Tensor
    scheme: Tensor | None
    depth: Tensor | None


class Digital(Transport):
    gives: ClassVar[frozenset[str]] = frozenset({"mean", "each"})
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
        rate_factor: float = stackable(
            1.0, gt=0, le=1, description="share of the Shannon rate that is reached"
        )
        snr_gap_db: float = stackable(
            0.0, ge=0, description="implementation gap: the SNR counts as so much lower"
        )
        margin_db: float = stackable(
            0.0,
            ge=0,
            description="devices choose their rate as if the SNR that they believe in were so "
            "much lower, which leaves room for errors of the estimate",
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
        max_symbols: float = stackable(
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

        @model_validator(mode="after")
        def _consistent(self) -> Self:
            if self.mcs_index is not None:
                most = len(MCS_TABLES[self.mcs_table]) - 1
                if self.rate != "mcs":
                    raise ValueError(f"mcs_index ({self.mcs_index}) needs rate: mcs")
                if self.mcs_index > most:
                    raise ValueError(
                        f"mcs_index: got {self.mcs_index}, but table {self.mcs_table} ends at "
                        f"{most}"
                    )
            if self.coding == "ldpc":
                if self.rate != "mcs":
                    raise ValueError(
                        "coding: 'ldpc' takes its modulation and code rate from a scheme; set "
                        "rate: mcs"
                    )
                if not self.outage:
                    raise ValueError(
                        "outage: false needs coding: ideal; LDPC blocks fail or do not"
                    )
                if self.over_budget == "quantise":
                    raise ValueError("over_budget: 'quantise' needs coding: ideal")
            elif self.on_block_error == "keep":
                raise ValueError("on_block_error: 'keep' needs coding: ldpc")
            if self.over_budget == "quantise" and not self.max_symbols:
                raise ValueError("over_budget: 'quantise' needs max_symbols, the bound to fit into")
            return self

        @property
        def plannable(self) -> bool:
            return self.rate == "shannon" and self.over_budget == "drop"

    def __init__(self, settings: Settings, setup: LinkSetup) -> None:
        super().__init__(settings, setup)
        self._table = MCS_TABLES[settings.mcs_table]
        self._capacity = Capacity(settings, setup)
        self._coded = (
            CodedBits(self._table, setup.codec, setup.streams)
            if settings.coding == "ldpc"
            else None
        )
        most = setup.hyper["max_symbols"][:, None]
        self._most = most.where(most > 0, torch.inf)
        self._bounded = bool((most > 0).any())

    def planned(self) -> OrthogonalUplink:
        """Return what devices know beforehand. An update counts as one block as large as what the
        device received."""
        hyper, codec = self.setup.hyper, self.setup.codec
        gap_db = hyper["snr_gap_db"].double()
        if self.settings.outage:
            gap_db = gap_db + hyper["margin_db"].double()

        def bits(reals: int) -> float:
            return codec.bits(Group({"update": torch.empty(1, reals, device="meta")}))

        return OrthogonalUplink(
            access=self.settings.access,
            gap=db_to_linear(gap_db).cpu().numpy(),
            rate_factor=hyper["rate_factor"].double().cpu().numpy(),
            bits=bits,
            csi=self.setup.csi,
        )

    def deliver(
        self,
        payload: Payload,
        cohort: Cohort,
        channel: ChannelState,
        round: int,
        limits: Limits = NO_LIMITS,
    ) -> tuple[Received, LinkReport]:
        tally = Tally(self.setup.budget, cohort.population)
        signals = [signal(group, cohort) for group in payload]
        uplink: list[tuple[Group, Signal]] = []
        for group, sent in zip(payload, signals, strict=True):
            if group.route == "uplink":
                uplink.append((group, sent))
            else:
                tally.hear_freely(sent.on_air())
        if not uplink:
            return gathered(payload, payload, signals, cohort, None, tally), tally.report()
        load = self._load(uplink, limits)
        links = self._links(uplink, load, channel, round)
        turns = self._paid(self._turns(uplink, load, links), load)
        received, arrived = self._carried(payload, cohort, turns, links, round)
        turns, arrived = self._interrupted(turns, arrived, load)
        self._charge(tally, load, turns, arrived, links.blocks)
        lossless = links.sure and self._coded is None and not self._bounded
        whole = lossless and limits.energy is None and limits.sent is None
        came = None if whole else arrived
        return gathered(payload, received, signals, cohort, came, tally), tally.report()

    def _load(self, uplink: Groups, limits: Limits) -> Load:
        """Add up what each device has to send, [S, K]."""
        like = self.setup.hyper["rate_factor"]
        on_air = torch.stack([sent.on_air() for _, sent in uplink])
        share = torch.stack([sent.share_on_air() for _, sent in uplink]).to(like)
        sizes = [
            [self.setup.codec.bits(group), sent.reals, len(sent.shapes)] for group, sent in uplink
        ]
        size = torch.tensor(sizes, dtype=like.dtype, device=like.device)
        bits, reals = torch.einsum("gc,gsk->csk", size[:, :2], share)
        blocks = torch.einsum("g,gsk->sk", size[:, 2], on_air.to(size.dtype))
        budget = self.setup.budget.budget
        if limits.power is not None:
            budget = budget * limits.power
        return Load(on_air.any(0), bits, reals, blocks, budget, limits)

    def _links(self, uplink: Groups, load: Load, channel: ChannelState, round: int) -> Links:
        """Reckon what the channels carry, with the power that is in a device's own band."""
        power = load.budget * channel.gain
        if self.settings.access == "ofdma":
            power = power * load.senders
        return self._capacity.links(channel, power, sum(sent.reals for _, sent in uplink), round)

    def _turns(self, uplink: Groups, load: Load, links: Links) -> Turns:
        """Give each device its channel uses, [S, K]: what its bits take at its rate. Who supports
        no rate, or does not fit its share of `max_symbols`, is silent."""
        rate, scheme = self._rates(links)
        share = self._most / load.senders
        bits, depth, sends = load.bits, None, load.on_air & (rate > 0)
        if self.settings.over_budget == "quantise":
            depth = fitting_depth(share * rate, load.reals, load.blocks)
            bits = bits_at(depth, load.reals, load.blocks)
            sends = sends & (depth >= 1)
        if self._coded is None:
            symbols = bits / rate.clamp_min(1e-12)
        else:
            assert scheme is not None
            symbols = torch.zeros_like(bits)
            for group, sent in uplink:
                own = self._coded.symbols(group)
                symbols = symbols + bits.new_tensor(own)[scheme] * sent.on_air()
        sends = sends & (symbols <= share * (1.0 + ROUNDING))
        return Turns(symbols * sends, bits * sends, sends, rate, scheme, depth)

    def _rates(self, links: Links) -> tuple[Tensor, Tensor | None]:
        """Choose bits a channel use and the scheme that has them; 0 where no scheme does."""
        if self.settings.rate == "shannon":
            return links.believed.clamp_min(1e-12), None
        efficiency = links.believed.new_tensor([mcs.efficiency for mcs in self._table])
        if self.settings.mcs_index is not None:
            scheme = torch.full_like(links.believed, self.settings.mcs_index, dtype=torch.int64)
            rate = efficiency[scheme]
        else:  # the fastest supported, not the last: 64-QAM's slowest is below 16-QAM's fastest
            supported = efficiency <= links.believed[..., None] * (1.0 + ROUNDING)
            rate, scheme = (efficiency * supported).max(-1)
        if not self.settings.outage:
            rate = torch.minimum(rate.where(rate > 0, efficiency.amin()), links.carried)
        return rate, scheme

    def _time(self, turns: Turns, load: Load) -> Tensor:
        """Return a device's time on air [S, K], its channel uses in channel uses of the whole band,
        of which its own band has one in n."""
        return turns.symbols if self.settings.access == "tdma" else turns.symbols * load.senders

    def _cost(self, turns: Turns, load: Load) -> Tensor:
        """Return the energy of a device's packet [S, K], radiated and drawn by its circuits."""
        circuits = load.limits.per_symbol
        power = load.budget if circuits is None else load.budget + circuits
        return self._time(turns, load) * power

    def _paid(self, turns: Turns, load: Load) -> Turns:
        """Keep the turns of those who can pay for their packet."""
        energy = load.limits.energy
        if energy is None:
            return turns
        sends = turns.sends & (self._cost(turns, load) <= energy * (1.0 + ROUNDING))
        return replace(turns, symbols=turns.symbols * sends, bits=turns.bits * sends, sends=sends)

    def _carried(
        self, payload: Payload, cohort: Cohort, turns: Turns, links: Links, round: int
    ) -> tuple[Sequence[Group], Tensor]:
        """Carry the packets over the channel.

        Returns
        -------
        The payload as received, and whose update arrives, [S, K] bool.
        """
        if self._coded is not None:
            assert turns.scheme is not None
            scheme = turns.scheme.where(turns.sends, -1)
            read, right = self._coded.send(payload, cohort, scheme, links.snr, round)
            if self.settings.on_block_error == "keep":
                return read, turns.sends
            return payload, turns.sends & right
        arrived = turns.sends
        if not links.sure:
            arrived = arrived & (turns.rate <= links.carried * (1.0 + ROUNDING))
        if turns.depth is None:
            return payload, arrived
        return fitted(payload, cohort, turns.depth, self.setup.streams, round), arrived

    def _interrupted(self, turns: Turns, arrived: Tensor, load: Load) -> tuple[Turns, Tensor]:
        """Return the turns with repeated packets, up to the crash, and whose packet arrives whole,
        [S, K] bool. A repetition was not planned: it goes beyond `max_symbols`; but a device that
        cannot pay for it does not send it."""
        limits, uses = load.limits, torch.ones_like(turns.symbols)
        if limits.copies is None and limits.sent is None:
            return turns, arrived
        if limits.copies is not None:
            uses = limits.copies
            if limits.energy is not None:
                cost = self._cost(turns, load).clamp_min(1e-30)
                paid = (limits.energy * (1.0 + ROUNDING) / cost).floor()
                uses = torch.minimum(uses, paid.clamp_min(1.0))
        if limits.sent is not None:
            uses = uses * limits.sent
        turns = replace(turns, symbols=turns.symbols * uses, bits=turns.bits * uses)
        return turns, arrived & (uses >= 1.0)

    def _charge(self, tally: Tally, load: Load, turns: Turns, arrived: Tensor, blocks: int) -> None:
        """Add up bits, channel uses, energy and pilots; arrived: [S, K] bool."""
        time = self._time(turns, load)
        tally.carry(turns.bits.sum(1))
        tally.slot(time.sum(1) if self.settings.access == "tdma" else time.amax(1))
        tally.radiate(time * load.budget, time, arrived)
        tally.hear(load.on_air, arrived)
        pilots = float(self.setup.csi.pilot_symbols * blocks)
        tally.side_symbols(load.on_air.sum(1).to(time.dtype) * pilots)
