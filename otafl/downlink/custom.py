"""User-defined downlink, a class that the scenario names `module:Class`.

It derives from `otafl.downlink.base.Downlink` or from a downlink of this package. Its results have
the right shapes; otherwise there is a UserError. One number stands for all trials.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from otafl.downlink.base import BroadcastDelivery, Downlink
from otafl.user_code.custom_part import Call, CustomClass, check_shape, describe_kind

DELIVERED = check_shape(
    lambda given: [given["cohort"].num_rows], "delivered_mask of shape ", ", one row per device"
)
OF_TRIALS = {
    name: check_shape(lambda given: [given["cohort"].num_trials], f"{name} of shape ", one=True)
    for name in ("seconds", "bits")
}


def check_arrival(call: Call, value: Any) -> BroadcastDelivery:
    """Check for a `BroadcastDelivery` with one row per device and finite numbers for each trial."""
    call.require(
        isinstance(value, BroadcastDelivery),
        describe_kind(value),
        "an otafl.downlink.base.BroadcastDelivery",
    )
    if value.delivered_mask is not None:
        DELIVERED(call, value.delivered_mask)
    numbers = {name: check(call, getattr(value, name)) for name, check in OF_TRIALS.items()}
    for name, number in numbers.items():
        positive = bool((np.isfinite(number) & (number >= 0)).all())
        got = f"{name} that are negative or not finite"
        call.require(positive, got, "finite numbers of at least 0")
    return replace(value, **numbers)


class CustomDownlink(CustomClass):
    """User-defined downlink, which is checked in every round."""

    table: ClassVar = "downlink"
    base_class: ClassVar = Downlink
    returns: ClassVar = {"send": check_arrival}
