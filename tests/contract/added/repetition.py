"""Deliver without error, each symbol sent twice at full power."""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.uplink.base import Counts, Transport
from otafl.uplink.delivery import Delivery


class Repetition(Transport):
    provides: ClassVar[frozenset[str]] = frozenset({"mean", "each"})
    counts: ClassVar[Counts] = "one"
    uses_fading: ClassVar[bool] = False
    loses_updates: ClassVar[bool] = False

    class Settings(Transport.Settings):
        name: Literal["repetition"] = "repetition"

    def transmit(self, delivery: Delivery) -> None:
        for sent in delivery.uplink:
            delivery.give_exact(sent)
            delivery.note_delivered(sent)
            on_air = sent.transmitter_mask
            symbols = 2.0 * sent.num_coordinates * on_air.to(sent.x.dtype)
            energy = symbols * self.budget.budget
            delivery.tally.add(symbols=symbols.amax(1), energy=energy, sent=symbols)
            delivery.tally.note(on_air=on_air)
