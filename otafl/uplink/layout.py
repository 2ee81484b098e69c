"""Lay a slot out: which channel uses, cells, budgets and limits the groups of a payload have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from otafl.csi.base import Csi
from otafl.uplink.bounds import Bounds
from otafl.uplink.delivery import Delivery
from otafl.uplink.interleaving import Uses, in_order


@dataclass(frozen=True)
class Slot:
    """Hold what the groups of a payload share, large-scale gain included in the channel.

    h, h_hat: [S, K, A, C] true and estimated, C cells flattened over (B, F); one tensor where the
    estimate is the truth. stops: the channel use after which each cell ends. gain, budget: [S, K].
    symbols: channel uses of the slot. bounds: what limits it. uses: those of each group. mixed:
    symbols are interleaved. each: channel uses of a symbol, in which stops, uses, bounds and
    segments count.
    """

    round: int
    h: Tensor
    h_hat: Tensor
    stops: list[int]
    gain: Tensor
    budget: Tensor
    symbols: int
    bounds: Bounds
    uses: list[Uses]
    mixed: bool
    each: int = 1


def lay_out(delivery: Delivery, lengths: Sequence[int], csi: Csi, each: int = 1) -> Slot:
    """Lay out the slot of a delivery, and count its pilots.

    Parameters
    ----------
    delivery : of the payload.
    lengths : symbols of the groups, which are sent one after the other.
    csi : estimates the channel.
    each : channel uses of a symbol. They have the fade of the first of them.
    """
    channel, round = delivery.channel, delivery.round
    symbols = max(1, sum(lengths))
    h, root = channel.over(each * symbols), channel.gain.sqrt()[:, :, None, None]
    h_hat = csi.estimate(h, channel.gain, round)
    scaled = root * h.flatten(3)
    limits = delivery.limits
    if limits.per_symbol is not None and each > 1:
        limits = replace(limits, per_symbol=each * limits.per_symbol)
    pilots = float(csi.pilot_symbols * h.shape[3])
    delivery.tally.add(side=delivery.uplink[0].cohort.rows_of * pilots)
    return Slot(
        round=round,
        h=scaled,
        h_hat=scaled if h_hat is h else root * h_hat.flatten(3),
        stops=[-(-stop // each) for stop in channel.stops(h, each * symbols)],
        gain=channel.gain,
        budget=delivery.power_budget,
        symbols=each * symbols,
        bounds=Bounds(limits, symbols),
        uses=in_order(lengths),
        mixed=False,
        each=each,
    )
