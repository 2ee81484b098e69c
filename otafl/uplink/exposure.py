"""What servers receive of a device, of which the privacy account bounds the power.

A `curious` server uses all antennas and both quadratures, g_k^2 = sum_a |h_ka p_k|^2. An `honest`
one keeps only the symbols that it estimates from, g_k^2 = Re(f^H h_k p_k)^2. If several servers
receive a device, g_k^2 is the sum over them.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from otafl.privacy.mechanism import Privacy
from otafl.uplink.delivery import Delivery, Slot
from otafl.uplink.intercell import InterCellInterference
from otafl.uplink.transmission import Transmission


def compute_power_gains(slot: Slot, neighbours: InterCellInterference | None) -> Tensor:
    """Compute sum |h|^2 over the antennas of all servers of a device, [S, K, cells]."""
    own = slot.h.abs().square().sum(2)
    return own if neighbours is None else own + neighbours.power_gains(slot)


def limit_power(privacy: Privacy, slot: Slot, gains: Tensor, delivery: Delivery) -> Slot:
    """Limit the power budgets of a slot to the privacy bound.

    Parameters
    ----------
    privacy : Privacy
        Privacy account.
    slot : Slot
        Slot with power budgets [S, K].
    gains : Tensor, float [S, K, cells]
        Result of `compute_power_gains`.
    delivery : Delivery
        Signals to send, and further limits of the slot.

    Returns
    -------
    Slot
        Slot with the limited budgets.
    """
    sends = torch.stack([rows.transmitter_mask for rows in delivery.uplink]).any(0)
    symbols = slot.symbols // slot.turns
    budget = privacy.limit_power(
        slot.budget, gains.amax(2), symbols, slot.round, sends, delivery.limits
    )
    return replace(slot, budget=budget)


def charge(
    privacy: Privacy,
    on_air: Transmission,
    gains: Tensor,
    neighbours: InterCellInterference | None,
    shifts_carrier: bool,
) -> None:
    """Charge a group's transmission to the privacy account.

    Parameters
    ----------
    privacy : Privacy
        Privacy account.
    on_air : Transmission
        Transmission of the group.
    gains : Tensor, float [S, K, cells]
        Result of `compute_power_gains`.
    neighbours : InterCellInterference or None
        Channels between servers and each other's devices.
    shifts_carrier : bool
        Whether carrier offsets turn a payload from one quadrature to the other.
    """
    if privacy.settings.adversary == "honest":
        one_quadrature = on_air.segments.halves == 1 and not shifts_carrier
        power = _compute_estimated_gains(on_air, one_quadrature, neighbours)
    else:
        cells = gains[..., list(on_air.segments.cells)]
        power = cells.mT.double() * on_air.p.abs().double().square()
    privacy.spend(power.amax(1), on_air.sent.grid(on_air.scale).double())


def _compute_estimated_gains(
    on_air: Transmission, one_quadrature: bool, neighbours: InterCellInterference | None
) -> Tensor:
    """Compute the squared gains [S, Q, K] of devices in the estimates of all servers."""

    def square(gain: Tensor) -> Tensor:
        return (gain.real if one_quadrature else gain.abs()).double().square()

    power = square(on_air.h * on_air.p)
    if neighbours is None:
        return power
    table = neighbours.scalar_gains(on_air)  # [S, C K, Q, C]
    servers = table.shape[3]
    sent = on_air.p.unflatten(0, (-1, servers)).transpose(2, 3).flatten(1, 2)
    others = square(table * sent[..., None]).sum(3)
    return power + others.unflatten(1, (servers, -1)).flatten(0, 1).mT
