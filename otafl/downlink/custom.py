"""Take a downlink of the user's own, a class that the scenario names `module:Class`.

It derives from `otafl.downlink.base.Downlink` or from a downlink of this package. What it returns
has the right shapes, or there is a UserError; one number stands for all trials.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from otafl.downlink.base import Arrival, Downlink
from otafl.user_code.own import OwnClass
from otafl.user_code.returned import Call, check_shape, describe_kind

HEARD = check_shape(lambda given: [given["cohort"].size], "heard of shape ", ", one row per device")
OF_TRIALS = {
    name: check_shape(lambda given: [given["cohort"].trials], f"{name} of shape ", one=True)
    for name in ("seconds", "bits")
}


def check_arrival(call: Call, value: Any) -> Arrival:
    """Require an Arrival with a row a device and finite numbers of each trial."""
    call.require(isinstance(value, Arrival), describe_kind(value), "an otafl.downlink.base.Arrival")
    if value.heard is not None:
        HEARD(call, value.heard)
    numbers = {name: check(call, getattr(value, name)) for name, check in OF_TRIALS.items()}
    for name, number in numbers.items():
        positive = bool((np.isfinite(number) & (number >= 0)).all())
        call.require(positive, f"{name} that are not numbers from 0 on", "finite ones")
    return replace(value, **numbers)


class CustomDownlink(OwnClass):
    """The section names a downlink of the user's, which is checked in every round."""

    table: ClassVar = "downlink"
    contract: ClassVar = Downlink
    returns: ClassVar = {"send": check_arrival}
