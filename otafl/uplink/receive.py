"""Receive a group: of its sums, the estimate that the server makes of the aggregate."""

from __future__ import annotations

from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.uplink.delivery import Delivery
from otafl.uplink.on_air import OnAir
from otafl.uplink.signal import divide_by_weights


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
    sent, means = on_air.sent, on_air.normalised.means
    if means is not None:
        delivered = on_air.normalised.scale[:, None] * means * on_air.active_rows
        total += on_air.expand(sent.sum_by_trial(delivered) * on_air.unit)
        exact += on_air.expand(sent.sum_by_trial(sent.exact[:, None] * means))
    hand_over(on_air, total, exact, delivery)


def hand_over(on_air: OnAir, total: Tensor, exact: Tensor, delivery: Delivery) -> None:
    """Give the server its estimate of a group, and note the aggregation error.

    Of a group with a mask, each coordinate's sum is divided by the weight that knows it. The others
    as in `receive`.
    """
    sent = on_air.sent
    count: Tensor | Tensors = on_air.weight[:, 0]
    if sent.mask is not None:
        total, exact, count = divide_by_weights(sent, total, exact, on_air.weigh_known(sent.mask))
    reached = on_air.weigh_coordinates()
    delivery.give_estimate(sent, total, exact, count, reached, delivered_fn=on_air.delivered_mask)
