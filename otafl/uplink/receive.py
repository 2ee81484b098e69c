"""Receive a group: of its sums, the estimate that the server makes of the aggregate."""

from __future__ import annotations

from torch import Tensor

from otafl.core.contracts import Blocks
from otafl.uplink.delivery import Delivery
from otafl.uplink.on_air import OnAir
from otafl.uplink.signal import by_coordinate


def receive(on_air: OnAir, total: Tensor, exact: Tensor, delivery: Delivery) -> None:
    """Add the means that devices took off, and hand the estimate over.

    Parameters
    ----------
    on_air : OnAir
        What was transmitted.
    total, exact : Tensor, float [S, P]
        Sum that is received, and error-free sum. They are written to.
    delivery : Delivery
        Takes the estimate.
    """
    sent, normalised, segments = on_air.sent, on_air.normalised, on_air.segments
    if normalised.means is not None:
        arrived = sent.by_trial(normalised.scale[:, None] * normalised.means * on_air.active_rows)
        total += segments.at_reals(arrived * on_air.unit, sent.reals)
        whole = sent.by_trial(sent.exact[:, None] * normalised.means)
        exact += segments.at_reals(whole, sent.reals)
    hand_over(on_air, total, exact, delivery)


def hand_over(on_air: OnAir, total: Tensor, exact: Tensor, delivery: Delivery) -> None:
    """Give the server its estimate of a group, and note the aggregation error.

    Of a group with a mask, each coordinate's sum is divided by the weight that knows it. The others
    as in `receive`.
    """
    sent = on_air.sent
    count: Tensor | Blocks = on_air.weight[:, 0]
    if sent.mask is not None:
        total, exact, count = by_coordinate(sent, total, exact, on_air.reached_weight(sent.mask))
    delivery.give_estimate(sent, total, exact, count, on_air.reached(), heard=on_air.heard())
