"""Receive a group: of its sums, the estimate that the server makes of the aggregate."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from otafl.core.contracts import Blocks
from otafl.uplink.delivery import Delivery
from otafl.uplink.on_air import OnAir
from otafl.uplink.signal import by_coordinate, squared_norm


@dataclass(frozen=True)
class Estimate:
    """What the server makes of a group.

    value: [S, P]. exact: [S, P], the error-free aggregate. weight: what arrived, [S], or [S,
    *shape] blocks where there is a mask.
    """

    value: Tensor
    exact: Tensor
    weight: Tensor | Blocks


def receive(on_air: OnAir, total: Tensor, exact: Tensor) -> Estimate:
    """Give the means back, and divide each coordinate's sum by the weight that knows it.

    Parameters
    ----------
    on_air : the transmission.
    total, exact : sums [S, P], written to.
    """
    symbols, sent = on_air.symbols, on_air.symbols.sent
    if symbols.means is not None:
        arrived = sent.by_trial(symbols.scale[:, None] * symbols.means * on_air.active_rows)
        total += symbols.segments.at_reals(arrived * on_air.unit, sent.reals)
        whole = sent.by_trial(sent.exact[:, None] * symbols.means)
        exact += symbols.segments.at_reals(whole, sent.reals)
    if sent.mask is None:
        return Estimate(total, exact, on_air.weight[:, 0])
    return Estimate(*by_coordinate(sent, total, exact, on_air.reached_weight(sent.mask)))


def hand_over(on_air: OnAir, estimate: Estimate, delivery: Delivery) -> None:
    """Give the server its estimate of a group, and note the aggregation error."""
    symbols, value, exact = on_air.symbols, estimate.value, estimate.exact
    delivery.give(
        symbols.index,
        symbols.sent.blocks(value),
        estimate.weight,
        reached=on_air.reached(),
        heard=on_air.heard(),
    )
    delivery.tally.error(squared_norm(value - exact), squared_norm(exact))
