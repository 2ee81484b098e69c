"""Slots at a fixed period for the devices that are ready; the others continue."""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.core.settings import declare_stackable
from otafl.devices.protocols.base import Late, Protocol, Rules


class Periodic(Protocol):
    """Protocol with a fixed period."""

    has_deadline: ClassVar[bool] = False

    name: Literal["periodic"] = "periodic"
    period_s: float = declare_stackable(1.0, gt=0)
    """seconds between slots; a slot during an earlier transmission is skipped"""

    def build_rules(self, deadline_s: float, late: Late) -> Rules:
        return Rules(0, self.period_s, late="next", broadcast_first=False)
