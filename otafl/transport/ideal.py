"""An uplink without error: the exact mean, and each update. It is charged like one over-the-air
slot at full power, so it bounds what any channel can reach at the same cost. No limit applies to
it: nobody runs short of energy, crashes within the slot or sends twice."""

from __future__ import annotations

from otafl.core.contracts import (
    NO_LIMITS,
    ChannelState,
    Cohort,
    Limits,
    LinkReport,
    Payload,
    Received,
)
from otafl.transport.config import IdealConfig
from otafl.transport.report import Tally
from otafl.transport.setup import Gathered, LinkSetup
from otafl.transport.superpose import each_row, error_free, signal


class Ideal:
    gives = IdealConfig.gives

    def __init__(self, config: IdealConfig, setup: LinkSetup) -> None:
        self._budget = setup.budget

    def deliver(
        self,
        payload: Payload,
        cohort: Cohort,
        channel: ChannelState,
        round: int,
        limits: Limits = NO_LIMITS,
    ) -> tuple[Received, LinkReport]:
        tally, gathered = Tally(self._budget, cohort.population), Gathered()
        for group in payload:
            sent = signal(group, cohort)
            gathered.add(*error_free(sent))
            if group.route == "ideal":
                continue
            gathered.arrived(sent)
            on_air = sent.on_air()
            symbols = sent.reals * on_air.to(sent.x.dtype)
            tally.slot(symbols.amax(1))
            tally.radiate(symbols * self._budget.budget, symbols, on_air)
        each = tuple(each_row(group, cohort) for group in payload)
        return gathered.received(each), tally.report()
