"""Send the update twice in a slot.

It also comes by chance, with `faults.duplicate_probability` of each transmitter and slot.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import Hyper, TransmitLimits
from otafl.devices.attacks.base import Attack


class Duplicate(Attack):
    """A second copy of the update."""

    changes_updates: ClassVar[bool] = False

    name: Literal["duplicate"] = "duplicate"

    def change_limits(
        self, limits: TransmitLimits, attacks: Tensor, shares: Tensor, hyper: Hyper
    ) -> TransmitLimits:
        copies = torch.ones_like(shares) + attacks
        return replace(limits, num_copies=copies)
