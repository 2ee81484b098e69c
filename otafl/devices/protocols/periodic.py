"""Open a slot every so many seconds for those who are ready; the others go on."""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.core.settings import declare_stackable
from otafl.devices.protocols.base import Late, Protocol, Rules


class Periodic(Protocol):
    has_deadline: ClassVar[bool] = False

    name: Literal["periodic"] = "periodic"
    period_s: float = declare_stackable(1.0, gt=0)
    """seconds between slots; one that the last transmission covers is left out"""

    def build_rules(self, deadline_s: float, late: Late) -> Rules:
        return Rules(0, self.period_s, late="next", broadcast_first=False)
