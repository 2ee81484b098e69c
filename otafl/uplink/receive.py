"""The server's estimate of a group's aggregate from the received sum."""

from __future__ import annotations

from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.uplink.delivery import Delivery
from otafl.uplink.on_air import OnAir
from otafl.uplink.signal import divide_by_weights


def receive(on_air: OnAir, total: Tensor, exact: Tensor, delivery: Delivery) -> None:
    """Add the means that devices subtracted, and pass the estimate to the server.

    Parameters
    ----------
    on_air : OnAir
        Transmission of the group.
    total, exact : Tensor, float [S, P]
        Received sum, and error-free sum. Both are changed in place.
    delivery : Delivery
        Gets the estimate.
    """
    sent, means = on_air.sent, on_air.normalised.means
    if means is not None:
        delivered = on_air.normalised.scale[:, None] * means * on_air.active_rows
        total += on_air.expand(sent.sum_by_trial(delivered) * on_air.unit)
        exact += on_air.expand(sent.sum_by_trial(sent.exact[:, None] * means))
    hand_over(on_air, total, exact, delivery)


def hand_over(on_air: OnAir, total: Tensor, exact: Tensor, delivery: Delivery) -> None:
    """Pass the server its estimate of a group, and add the aggregation error.

    In a group with a mask, each coordinate's sum is divided by the weight of the devices that have
    it. The parameters are those of `receive`.
    """
    sent = on_air.sent
    count: Tensor | Tensors = on_air.weight[:, 0]
    if sent.mask is not None:
        total, exact, count = divide_by_weights(sent, total, exact, on_air.weigh_known(sent.mask))
    reached = on_air.weigh_coordinates()
    delivery.give_estimate(sent, total, exact, count, reached, delivered_fn=on_air.delivered_mask)
