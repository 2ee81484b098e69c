"""Orthogonal digital uplink: every device has channel uses of its own and sends bits at full power.

TDMA gives a device the whole band for a while, OFDMA 1/n of the band for the whole slot: the same
power in less noise, so n times the signal-to-noise ratio. A channel use carries at most
rate_factor log2(1 + SNR / gap) bits, the SNR that after maximum-ratio combining, in the mean over
the channel's cells. Rates are chosen by the estimate; a device whose rate is above what its true
channel carries has spent its time and energy, but its update is lost: it is left out of the mean,
and the weights are normalised over what arrived.

A device whose energy cannot pay for all its channel uses cannot finish its packet: it stays silent
and keeps what it has. One that crashes has spent the channel uses up to there, and its packet is
lost. Of a packet that is sent twice the server drops the copy by its sequence number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from otafl.core.contracts import (
    NO_LIMITS,
    NOISE_VARIANCE,
    Blocks,
    ChannelState,
    Cohort,
    Group,
    Limits,
    LinkReport,
    Payload,
    Received,
)
from otafl.core.errors import UserError
from otafl.models.base import flatten
from otafl.transport import fitted_bits
from otafl.transport.coded_bits import CodedBits
from otafl.transport.config import DigitalConfig
from otafl.transport.mcs import MCS_TABLES
from otafl.transport.report import Tally
from otafl.transport.setup import Gathered, LinkSetup
from otafl.transport.superpose import Signal, each_row, error_free, signal, squared_norm

ROUNDING = 1e-5
"""A rate above what is carried by less than this share is one that equals it."""


@dataclass(frozen=True)
class _Load:
    """What each device has to send: on_air [S, K] bool; bits, reals, blocks [S, K] over the uplink
    groups. senders: [S, 1], at least 1."""

    on_air: Tensor
    bits: Tensor
    reals: Tensor
    blocks: Tensor

    @property
    def senders(self) -> Tensor:
        return self.on_air.sum(1, keepdim=True).clamp_min(1).to(self.bits.dtype)


@dataclass(frozen=True)
class _Links:
    """Bits a channel use of each device [S, K]: what it believes that its channel carries, and what
    it does. snr: [S, K] true, that of a flat channel that carries as much. blocks: coherence blocks
    that pilots are sent in. sure: the host knows that no rate is above what is carried, and none
    0."""

    believed: Tensor
    carried: Tensor
    snr: Tensor
    blocks: int
    sure: bool


@dataclass(frozen=True)
class _Turns:
    """How each device sends, [S, K]. symbols: its channel uses, 0 if it is silent. bits: sent.
    sends: bool. rate: bits a channel use. scheme: int64 place in the table of schemes. depth: bits
    a real, where they are fitted to the slot."""

    symbols: Tensor
    bits: Tensor
    sends: Tensor
    rate: Tensor
    scheme: Tensor | None
    depth: Tensor | None


class Digital:
    gives = DigitalConfig.gives

    def __init__(self, config: DigitalConfig, setup: LinkSetup) -> None:
        self._config = config
        self._setup = setup
        self._table = MCS_TABLES[config.mcs_table]
        self._coded = (
            CodedBits(self._table, setup.codec, setup.streams) if config.coding == "ldpc" else None
        )
        hyper, impairments = setup.hyper, setup.impairments
        self._gap = _linear(hyper["snr_gap_db"])[:, None]
        self._margin = _linear(hyper["margin_db"])[:, None]
        self._factor = hyper["rate_factor"][:, None]
        self._most = hyper["max_symbols"][:, None].where(
            hyper["max_symbols"][:, None] > 0, torch.inf
        )
        self._bounded = bool((hyper["max_symbols"] > 0).any())
        self._disturbed = impairments.disturbed

    def deliver(
        self,
        payload: Payload,
        cohort: Cohort,
        channel: ChannelState,
        round: int,
        limits: Limits = NO_LIMITS,
    ) -> tuple[Received, LinkReport]:
        tally, gathered = Tally(self._setup.budget, cohort.population), Gathered()
        signals = [signal(group, cohort) for group in payload]
        uplink = [
            (group, sent)
            for group, sent in zip(payload, signals, strict=True)
            if group.route == "uplink"
        ]
        received: list[Group] = list(payload)
        heard, whole = cohort, True
        if uplink:
            load, budget = self._load(uplink), self._setup.budget.budget
            if limits.power is not None:
                budget = budget * limits.power
            reals = sum(sent.reals for _, sent in uplink)
            links = self._links(channel, load, reals, round, budget)
            turns = self._turns(uplink, load, links)
            if limits.energy is not None:
                turns = self._paid(turns, load, limits, budget)
            arrived = turns.sends
            if self._coded is not None:
                received, arrived = self._send_bits(payload, cohort, turns, links, round)
            elif not links.sure:
                arrived = arrived & (turns.rate <= links.carried * (1.0 + ROUNDING))
            if turns.depth is not None:
                received = self._fitted(payload, cohort, turns.depth, round)
            if limits.copies is not None or limits.sent is not None:
                turns, complete = self._interrupted(turns, load, limits, budget)
                arrived = arrived & complete
            self._charge(tally, load, turns, arrived, links.blocks, budget)
            whole = links.sure and self._coded is None and not self._bounded
            whole = whole and limits.energy is None and limits.sent is None
            if not whole:
                sends = cohort.sends & arrived.flatten()[cohort.cell]
                heard = replace(cohort, sends=sends, all_send=False)
        each: list[Blocks] = []
        came_rows: list[Tensor | None] = []
        for group, came, sent in zip(payload, received, signals, strict=True):
            if group.route == "ideal" or whole:
                gathered.add(*error_free(sent))
                each.append(each_row(group, cohort))
                came_rows.append(None)
                if group.route == "uplink":
                    gathered.arrived(sent)
                continue
            got = signal(came, heard)
            mean, count = error_free(got)
            gathered.add(mean, _out_of_one(count, sent, arrived) if sent.linear else count)
            gathered.arrived(got)
            rows, own = _heard_rows(came, cohort, heard)
            each.append(own)
            came_rows.append(rows)
            target = flatten(error_free(sent)[0])
            tally.error(squared_norm(flatten(mean) - target), squared_norm(target))
        return gathered.received(tuple(each), tuple(came_rows)), tally.report()

    def _load(self, uplink: Sequence[tuple[Group, Signal]]) -> _Load:
        on_air = torch.stack([sent.on_air() for _, sent in uplink])
        share = torch.stack([sent.share_on_air() for _, sent in uplink]).to(self._factor)
        size = torch.tensor(
            [
                [self._setup.codec.bits(group), sent.reals, len(sent.shapes)]
                for group, sent in uplink
            ],
            dtype=self._factor.dtype,
            device=self._factor.device,
        )
        bits, reals = torch.einsum("gc,gsk->csk", size[:, :2], share)
        blocks = torch.einsum("g,gsk->sk", size[:, 2], on_air.to(size.dtype))
        return _Load(on_air.any(0), bits, reals, blocks)

    def _links(
        self, channel: ChannelState, load: _Load, reals: int, round: int, budget: Tensor
    ) -> _Links:
        """Of channels [S, K, A, cells] with the power that is in a device's own band; budget: [S,
        K]."""
        setup, config = self._setup, self._config
        state = channel.over(max(1, reals))
        power = budget * channel.gain
        if config.access == "ofdma":
            power = power * load.senders
        needs_estimate = config.outage or self._coded is not None
        estimate = setup.csi.estimate(state, channel.gain, round) if needs_estimate else state
        h, h_hat, blocks = state.flatten(3), estimate.flatten(3), state.shape[3]
        combined = power[..., None] * h_hat.abs().square().sum(2)
        exact = estimate is state and not self._disturbed
        true = combined
        if not exact:
            norm = torch.linalg.vector_norm(h_hat, dim=2, keepdim=True)
            combiner = h_hat / norm.clamp_min(1e-30)
            gain = (combiner.conj() * h).sum(2).abs().square()
            flat = combiner.permute(0, 1, 3, 2).flatten(1, 2)  # [S, K * cells, A]
            noise = setup.impairments.noise(flat, round).view_as(gain) / NOISE_VARIANCE
            true = power[..., None] * gain / noise
        carried = self._factor * _bits_a_use(true / self._gap[..., None])
        flat_snr = torch.expm1(torch.log1p(true).mean(-1))
        if not config.outage:  # retransmissions find out what the channel carries
            return _Links(carried, carried, flat_snr, blocks, True)
        known = setup.impairments.known_noise / NOISE_VARIANCE
        lowered = combined / (known[:, None] * self._gap * self._margin)[..., None]
        sure = exact and config.rate == "shannon"
        return _Links(self._factor * _bits_a_use(lowered), carried, flat_snr, blocks, sure)

    def _turns(self, uplink: Sequence[tuple[Group, Signal]], load: _Load, links: _Links) -> _Turns:
        rate, scheme = self._rates(links)
        share = self._most / load.senders
        bits, depth, sends = load.bits, None, load.on_air & (rate > 0)
        if self._config.over_budget == "quantise":
            depth = fitted_bits.depth(share * rate, load.reals, load.blocks)
            bits = fitted_bits.bits_at(depth, load.reals, load.blocks)
            sends = sends & (depth >= 1)
        if self._coded is None:
            symbols = bits / rate.clamp_min(1e-12)
        else:
            assert scheme is not None
            symbols = torch.zeros_like(bits)
            for group, sent in uplink:
                own = self._coded.symbols(self._setup.codec.bits(group))
                symbols = symbols + bits.new_tensor(own)[scheme] * sent.on_air()
        sends = sends & (symbols <= share * (1.0 + ROUNDING))
        return _Turns(symbols * sends, bits * sends, sends, rate, scheme, depth)

    def _rates(self, links: _Links) -> tuple[Tensor, Tensor | None]:
        """Bits a channel use and the scheme that has them; 0 where no scheme does."""
        if self._config.rate == "shannon":
            return links.believed.clamp_min(1e-12), None
        efficiency = links.believed.new_tensor([mcs.efficiency for mcs in self._table])
        if self._config.mcs_index is not None:
            scheme = torch.full_like(links.believed, self._config.mcs_index, dtype=torch.int64)
            rate = efficiency[scheme]
        else:  # the fastest supported, not the last: 64-QAM's slowest is below 16-QAM's fastest
            supported = efficiency <= links.believed[..., None] * (1.0 + ROUNDING)
            rate, scheme = (efficiency * supported).max(-1)
        if not self._config.outage:
            rate = torch.minimum(rate.where(rate > 0, efficiency.amin()), links.carried)
        return rate, scheme

    def _send_bits(
        self, payload: Payload, cohort: Cohort, turns: _Turns, links: _Links, round: int
    ) -> tuple[list[Group], Tensor]:
        """What arrives of real bits, group by group, and whose update does, [S, K] bool."""
        assert self._coded is not None
        assert turns.scheme is not None
        received = list(payload)
        keep = self._config.on_block_error == "keep"
        wrong = torch.zeros_like(turns.sends).flatten()
        scheme = turns.scheme.where(turns.sends, -1).flatten()[cohort.cell]
        scheme = scheme.where(cohort.sends, -1)
        snr = links.snr.flatten()[cohort.cell]
        for index, group in enumerate(payload):
            if group.route == "uplink":
                rows = _rows(group, cohort, "coding: 'ldpc'")
                bits = self._setup.codec.bits(group)
                came, right = self._coded.send(
                    group, bits, cohort, scheme[rows], snr[rows], round, str(index)
                )
                wrong[cohort.cell[rows[~right]]] = True
                received[index] = came if keep else group
        return received, turns.sends & (~wrong.view_as(turns.sends) | keep)

    def _fitted(self, payload: Payload, cohort: Cohort, depth: Tensor, round: int) -> list[Group]:
        """Every row at its device's bits a real [S, K]."""
        received = list(payload)
        for index, group in enumerate(payload):
            if group.route == "uplink":
                rows = _rows(group, cohort, "over_budget: 'quantise'")
                pair = cohort.trial[rows], cohort.device[rows]
                own = depth.flatten()[cohort.cell[rows]]
                blocks: Blocks = {}
                for name, known in group.known.items():
                    draw = self._setup.streams.device_uniform(
                        f"fitted/{index}/{name}", round, *pair, tuple(known.shape[1:])
                    )
                    blocks[name] = fitted_bits.rounded(known, own, draw)
                received[index] = replace(group, blocks=blocks)
        return received

    def _time(self, turns: _Turns, load: _Load) -> Tensor:
        """[S, K]: a device's time on air, its channel uses in channel uses of the whole band, of
        which its own band has one in n."""
        return turns.symbols if self._config.access == "tdma" else turns.symbols * load.senders

    def _cost(self, turns: _Turns, load: _Load, limits: Limits, budget: Tensor) -> Tensor:
        """[S, K]: energy of a device's packet, radiated and drawn by its circuits."""
        power = budget if limits.per_symbol is None else budget + limits.per_symbol
        return self._time(turns, load) * power

    def _paid(self, turns: _Turns, load: _Load, limits: Limits, budget: Tensor) -> _Turns:
        """The turns of those who can pay for their packet."""
        assert limits.energy is not None
        cost = self._cost(turns, load, limits, budget)
        sends = turns.sends & (cost <= limits.energy * (1.0 + ROUNDING))
        return replace(turns, symbols=turns.symbols * sends, bits=turns.bits * sends, sends=sends)

    def _interrupted(
        self, turns: _Turns, load: _Load, limits: Limits, budget: Tensor
    ) -> tuple[_Turns, Tensor]:
        """The turns with repeated packets, up to the crash, and whose packet is complete [S, K]
        bool. A repetition was not planned: it goes beyond `max_symbols`; but a device that cannot
        pay for it does not send it."""
        uses = torch.ones_like(turns.symbols)
        if limits.copies is not None:
            uses = limits.copies
            if limits.energy is not None:
                cost = self._cost(turns, load, limits, budget).clamp_min(1e-30)
                paid = (limits.energy * (1.0 + ROUNDING) / cost).floor()
                uses = torch.minimum(uses, paid.clamp_min(1.0))
        if limits.sent is not None:
            uses = uses * limits.sent
        out = replace(turns, symbols=turns.symbols * uses, bits=turns.bits * uses)
        return out, uses >= 1.0

    def _charge(
        self,
        tally: Tally,
        load: _Load,
        turns: _Turns,
        arrived: Tensor,
        blocks: int,
        budget: Tensor,
    ) -> None:
        time = self._time(turns, load)
        tally.carry(turns.bits.sum(1))
        tally.slot(time.sum(1) if self._config.access == "tdma" else time.amax(1))
        tally.radiate(time * budget, time, arrived)
        pilots = float(self._setup.csi.pilot_symbols * blocks)
        tally.side_symbols(load.on_air.sum(1).to(time.dtype) * pilots)


def _linear(decibels: Tensor) -> Tensor:
    return 10.0 ** (decibels / 10.0)


def _bits_a_use(snr: Tensor) -> Tensor:
    """Mean of log2(1 + SNR) over the cells: [S, K] of [S, K, cells]."""
    return torch.log1p(snr).mean(-1) / torch.log(snr.new_tensor(2.0))


def _rows(group: Group, cohort: Cohort, setting: str) -> Tensor:
    """[n] rows of the cohort; UserError where one occurs twice."""
    if group.rows is None:
        return torch.arange(cohort.size, device=cohort.cell.device)
    if len(torch.unique(group.rows)) < len(group.rows):
        raise UserError(
            f"transport.{setting} codes one row a device, and the algorithm sends several rows "
            "of a device in one group; use the defaults of transport digital"
        )
    return group.rows


def _heard_rows(group: Group, cohort: Cohort, heard: Cohort) -> tuple[Tensor, Blocks]:
    """Which of the sending rows of a group arrived [n] bool, and all of them, 0 where lost."""
    rows = slice(None) if group.rows is None else group.rows
    came = heard.sends[rows][cohort.sends[rows]]
    own = each_row(group, cohort)
    column = {name: came.view(-1, *[1] * (block.dim() - 1)) for name, block in own.items()}
    return came, {name: block.where(column[name], 0.0) for name, block in own.items()}


def _out_of_one(count: Tensor | Blocks, sent: Signal, arrived: Tensor) -> Tensor | Blocks:
    """The weight that arrived, out of that of all senders, where `count` is out of what arrived."""
    share = (sent.grid(sent.weight) * arrived).sum(1)
    if isinstance(count, dict):
        return {name: c * share.view(-1, *[1] * (c.dim() - 1)) for name, c in count.items()}
    return share
