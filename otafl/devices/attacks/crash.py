"""Crash in the middle of the slot, after a share of the symbols that is uniform in (0, 1).

It also comes by chance, with `faults.crash_probability` of each transmitter and slot.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from torch import Tensor

from otafl.core.contracts import Hyper, TransmitLimits
from otafl.devices.attacks.base import Attack


class Crash(Attack):
    """A transmission that ends too early."""

    changes_updates: ClassVar[bool] = False

    name: Literal["crash"] = "crash"

    def change_limits(
        self, limits: TransmitLimits, attacks: Tensor, shares: Tensor, hyper: Hyper
    ) -> TransmitLimits:
        return replace(limits, sent_fraction=shares.where(attacks, 1.0))
