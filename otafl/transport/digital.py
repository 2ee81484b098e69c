"""Orthogonal digital uplink: devices take turns (TDMA), each at a share of the Shannon rate of
its own channel, B log2(1 + SNR_k), at full power; what arrives is error-free."""

from __future__ import annotations

import torch

from otafl.contracts import ChannelState, Cohort, LinkReport, Payload, Received
from otafl.transport.config import DigitalConfig
from otafl.transport.report import Tally
from otafl.transport.setup import Gathered, LinkSetup
from otafl.transport.superpose import each_row, error_free, signal


class Digital:
    gives = DigitalConfig.gives

    def __init__(self, config: DigitalConfig, setup: LinkSetup) -> None:
        self._setup = setup

    def deliver(
        self, payload: Payload, cohort: Cohort, channel: ChannelState, round: int
    ) -> tuple[Received, LinkReport]:
        budget = self._setup.budget
        tally, gathered = Tally(budget, cohort.population), Gathered()
        snr = budget.budget[:, None] * channel.gain * channel.h[:, :, 0, 0, 0].abs().square()
        bits_per_symbol = self._setup.hyper["rate_factor"][:, None] * torch.log2(1.0 + snr)
        for group in payload:
            sent = signal(group, cohort)
            gathered.add(*error_free(sent))
            if group.route == "ideal":
                continue
            gathered.arrived(sent)
            on_air = sent.on_air()
            bits = self._setup.codec.bits(group) * on_air.to(snr.dtype)
            symbols = bits / bits_per_symbol.clamp_min(1e-12)
            tally.carry(bits.sum(1))
            tally.slot(symbols.sum(1))
            tally.radiate(symbols * budget.budget[:, None], symbols, on_air)
        each = tuple(each_row(group, cohort) for group in payload)
        return gathered.received(each), tally.report()
