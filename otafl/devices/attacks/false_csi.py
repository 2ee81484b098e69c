"""Flip the update, and transmit it at full power with a channel report that hides this.

The attacker reports a channel for which full power is what the policy asks for. So it transmits
with its whole power budget, in phase, and the receive scaling is that of the true reports. Its
effective gain is the larger the further the policy keeps others below their budgets: under channel
inversion it is sqrt(q_k / eta), with q_k = P_k |h_k|^2 / m_k. It keeps its power budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import Hyper, Tensors, TransmitLimits
from otafl.devices.attacks.base import Attack, Attacked, scale_rows


class FalseCsi(Attack):
    """Full power whatever the policy says."""

    example: ClassVar[Mapping[str, Any]] = {
        "faults.byzantine": 2,
        "transport.name": "over_the_air",
    }

    needs_power_control: ClassVar[bool] = True

    name: Literal["false_csi"] = "false_csi"

    def change_update(self, attacked: Attacked) -> Tensors:
        minus = -torch.ones_like(attacked.scale)
        return {name: scale_rows(own, minus) for name, own in attacked.own.items()}

    def change_limits(
        self, limits: TransmitLimits, attacks: Tensor, shares: Tensor, hyper: Hyper
    ) -> TransmitLimits:
        return replace(limits, full_power_mask=attacks)
