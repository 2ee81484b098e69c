"""Deliver without error or distortion, charged like one over-the-air slot at full power.

The server gets the exact mean, and each update. It bounds what any channel can reach at the same
cost. No limit applies to it: nobody runs short of energy, crashes within the slot or sends twice.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.core.contracts import (
    NO_LIMITS,
    ChannelState,
    Cohort,
    Limits,
    LinkReport,
    Payload,
    Received,
)
from otafl.transport.base import Counts, Transport
from otafl.transport.report import Gathered, Tally
from otafl.transport.superpose import each_row, error_free, signal


class Ideal(Transport):
    gives: ClassVar[frozenset[str]] = frozenset({"mean", "each"})
    counts: ClassVar[Counts] = "one"

    class Settings(Transport.Settings):
        name: Literal["ideal"] = "ideal"

    def deliver(
        self,
        payload: Payload,
        cohort: Cohort,
        channel: ChannelState,
        round: int,
        limits: Limits = NO_LIMITS,
    ) -> tuple[Received, LinkReport]:
        budget = self.setup.budget
        tally, gathered = Tally(budget, cohort.population), Gathered()
        for group in payload:
            sent = signal(group, cohort)
            gathered.add(*error_free(sent))
            on_air = sent.on_air()
            tally.hear_freely(on_air)
            if group.route == "ideal":
                continue
            gathered.arrived(sent)
            symbols = sent.reals * on_air.to(sent.x.dtype)
            tally.slot(symbols.amax(1))
            tally.radiate(symbols * budget.budget, symbols, on_air)
        each = tuple(each_row(group, cohort) for group in payload)
        return gathered.received(each), tally.report()
