"""Delivery without error or distortion, charged like one over-the-air slot at full power.

The server gets the exact mean, and each update. The transport bounds the result of any channel at
the same cost. No limit applies: no device lacks energy, crashes within the slot or sends twice.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.uplink.base import Counts, Transport
from otafl.uplink.delivery import Delivery


class Ideal(Transport):
    """Error-free transport at the cost of one over-the-air slot."""

    provides: ClassVar[frozenset[str]] = frozenset({"mean", "each"})
    counts: ClassVar[Counts] = "one"
    uses_fading: ClassVar[bool] = False

    class Settings(Transport.Settings):
        name: Literal["ideal"] = "ideal"

        @property
        def power_constraint(self) -> None:
            return None

    def transmit(self, delivery: Delivery) -> None:
        """Pass the server each group exactly, and charge its P symbols at full power."""
        for sent in delivery.uplink:
            delivery.give_exact(sent)
            delivery.note_delivered(sent)
            on_air = sent.transmitter_mask
            symbols = sent.num_coordinates * on_air.to(sent.x.dtype)
            energy = symbols * self.budget.budget
            delivery.add(symbols=symbols.amax(1), energy=energy, sent=symbols, on_air=on_air)
