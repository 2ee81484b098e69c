"""Layout of a slot: channel uses, channel cells, budgets and limits of the payload groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from otafl.core.contracts import TransmitLimits
from otafl.csi.base import Csi
from otafl.uplink.bounds import Bounds
from otafl.uplink.delivery import Delivery
from otafl.uplink.interleaving import Uses, take_in_order


@dataclass(frozen=True)
class Slot:
    """Channels, budgets and limits that the groups of a payload share.

    The channels include the large-scale gain.

    Parameters
    ----------
    round : int
        Number of the slot.
    h, h_hat : Tensor, complex [S, K, A, C]
        True and estimated channel, C cells flattened over (B, F). Both are one tensor if the
        estimate is exact.
    cell_stops : list of int
        Symbol after which each cell ends.
    gain, budget : Tensor, float [S, K]
        Large-scale power gain, and power budget.
    symbols : int
        Channel uses of the slot.
    bounds : Bounds
        Limits of the transmissions besides the budgets.
    uses : list of Uses
        Symbols of each group.
    interleaved : bool
        Whether symbols are sent in a pseudo-random order.
    uses_per_symbol : int
        Channel uses of a symbol, the unit of `cell_stops`, `uses`, `bounds` and segments.
    turns : int
        Groups of devices that share the slot, one after the other.
    """

    round: int
    h: Tensor
    h_hat: Tensor
    cell_stops: list[int]
    gain: Tensor
    budget: Tensor
    symbols: int
    bounds: Bounds
    uses: list[Uses]
    interleaved: bool
    uses_per_symbol: int = 1
    turns: int = 1

    @property
    def turn_symbols(self) -> int:
        """Return the channel uses of a device's turn."""
        return self.symbols // self.turns


def lay_out(
    delivery: Delivery,
    lengths: Sequence[int],
    csi: Csi | None,
    limits: TransmitLimits,
    uses_per_symbol: int = 1,
    spread: bool = False,
) -> Slot:
    """Lay out the slot of a delivery, and add its pilots to the tally.

    Parameters
    ----------
    delivery : Delivery
        Channel and power budgets.
    lengths : sequence of int
        Symbols of the groups, which are sent one after the other.
    csi : Csi or None
        Channel estimates; None if no device estimates its channel.
    limits : TransmitLimits
        Limits of the transmissions besides the budgets.
    uses_per_symbol : int
        Channel uses of a symbol, which have the fade of the first of them.
    spread : bool
        Whether each device sends in all cells of the channel.

    Returns
    -------
    Slot
        The slot.
    """
    channel, each, symbols = delivery.channel, uses_per_symbol, max(1, sum(lengths))
    h, root = channel.extend_to(each * symbols), channel.gain.sqrt()[:, :, None, None]
    scaled = root * h.flatten(3)
    h_hat = scaled
    if csi is not None:
        estimate = csi.estimate(h, channel.gain, delivery.round)
        h_hat = scaled if estimate is h else root * estimate.flatten(3)
        stops = channel.compute_cell_ends(h, each * symbols)[h.shape[4] - 1 :: h.shape[4]]
        _count_pilots(delivery, csi.num_pilot_symbols, stops, each * symbols, spread)
    if limits.energy_per_symbol is not None and each > 1:
        limits = replace(limits, energy_per_symbol=each * limits.energy_per_symbol)
    return Slot(
        round=delivery.round,
        h=scaled,
        h_hat=h_hat,
        cell_stops=[-(-stop // each) for stop in channel.compute_cell_ends(h, each * symbols)],
        gain=channel.gain,
        budget=delivery.power_budget,
        symbols=each * symbols,
        bounds=Bounds(limits, symbols, delivery.turns),
        uses=take_in_order(lengths),
        interleaved=False,
        uses_per_symbol=each,
        turns=delivery.turns,
    )


def _count_pilots(
    delivery: Delivery, num_pilots: int, stops: list[int], symbols: int, spread: bool
) -> None:
    """Count the pilots of each device in the coherence blocks of its turn.

    Parameters
    ----------
    delivery : of the slot.
    num_pilots : of a device in a block.
    stops : channel use after which each block ends.
    symbols : channel uses of the slot.
    spread : whether each device sends in all blocks.
    """
    turns, signals = delivery.turns, len(delivery.uplink)
    for turn in range(turns):
        first, stop = symbols * turn // turns, symbols * (turn + 1) // turns
        blocks = sum(
            spread or turns == 1 or (before < stop and end > first)
            for before, end in zip([0, *stops], stops, strict=False)
        )
        rows = delivery.uplink[turn * signals // turns].cohort.rows_per_trial
        delivery.tally.add(side=rows * float(num_pilots * blocks))
