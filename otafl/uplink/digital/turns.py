"""Channel uses of each device's packet: what it sends, at which rate, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from otafl.uplink.delivery import Delivery

ROUNDING = 1e-5
"""Relative difference below which a rate counts as equal to what the channel carries."""


@dataclass(frozen=True)
class Load:
    """Data that each device has to send over the uplink groups of a delivery.

    Parameters
    ----------
    delivery : Delivery
        The payload.
    on_air, active : Tensor, bool [S, K]
        Transmitters, and those at or above the gain threshold.
    bits, num_coordinates, blocks : Tensor, float [S, K]
        Bits, coordinates and tensors of a device's update.
    budget : Tensor, float [S, K]
        Power budget.
    sharers : Tensor, float [S, 1]
        Number of devices that share the band or `max_symbols`, at least 1.
    parts : Tensor, float [S, 1]
        Number of parts of the band, of which a device has one.
    """

    delivery: Delivery
    on_air: Tensor
    active: Tensor
    bits: Tensor
    num_coordinates: Tensor
    blocks: Tensor
    budget: Tensor
    sharers: Tensor
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


def drop_unpaid(turns: Turns) -> Turns:
    """Select the turns of devices with the energy for their packet."""
    energy = turns.load.delivery.limits.energy_budget
    if energy is None:
        return turns
    sends = turns.sends & (turns.cost <= energy * (1.0 + ROUNDING))
    return replace(turns.times(sends), sends=sends)


def interrupt(turns: Turns, arrived: Tensor) -> tuple[Turns, Tensor]:
    """Return the turns with repeated packets, up to the crash, and the delivered packets.

    A repetition was not planned, so it may exceed `max_symbols`, but a device without the energy
    for it does not send it.
    """
    limits, uses = turns.load.delivery.limits, torch.ones_like(turns.symbols)
    if limits.num_copies is None and limits.sent_fraction is None:
        return turns, arrived
    if limits.num_copies is not None:
        uses = limits.num_copies
        if limits.energy_budget is not None:
            paid = limits.energy_budget * (1.0 + ROUNDING) / turns.cost.clamp_min(1e-30)
            uses = torch.minimum(uses, paid.floor().clamp_min(1.0))
    if limits.sent_fraction is not None:
        uses = uses * limits.sent_fraction
    return turns.times(uses), arrived & (uses >= 1.0)
