"""Report a norm that is `factor` times the true one, so that a common scale lowers all devices.

Policies with a common receive scaling answer to the largest mean symbol power. The false report
lowers the transmit powers of all devices, the attacker's too, and the noise drowns the sum. Its
update is honest. It keeps its power budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from torch import Tensor

from otafl.core.contracts import Hyper, TransmitLimits
from otafl.core.settings import declare_stackable
from otafl.devices.attacks.base import Attack


class FalseNorm(Attack):
    """A false report of the norm."""

    changes_updates: ClassVar[bool] = False
    example: ClassVar[Mapping[str, Any]] = {
        "faults.byzantine": 2,
        "transport.name": "over_the_air",
    }

    needs_power_control: ClassVar[bool] = True
    reports_norm: ClassVar[bool] = True

    name: Literal["false_norm"] = "false_norm"
    factor: float = declare_stackable(100.0, gt=0)
    """reported norm over the true one"""

    def change_limits(
        self, limits: TransmitLimits, attacks: Tensor, shares: Tensor, hyper: Hyper
    ) -> TransmitLimits:
        power = hyper["factor"].square()[:, None].where(attacks, 1.0)
        return replace(limits, reported_power=power)
