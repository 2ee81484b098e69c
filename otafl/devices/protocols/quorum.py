"""Slot as soon as M devices are ready (semi-asynchronous); the others continue.

It opens at once if all devices at work are ready, and at devices.deadline_s after the last slot at
the latest.

References
----------
Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba 2022, "Federated Learning with Buffered
    Asynchronous Aggregation".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from otafl.core.problems import Problem, make_problem
from otafl.core.settings import declare_stackable
from otafl.devices.protocols.base import Late, Protocol, Rules


class Quorum(Protocol):
    """Protocol with a minimum number of ready devices."""

    name: Literal["quorum"] = "quorum"
    ready: int = declare_stackable(2, ge=1)
    """number M of devices that must be ready"""

    def build_rules(self, deadline_s: float, late: Late) -> Rules:
        return Rules(self.ready, deadline_s=deadline_s, late="next", broadcast_first=False)

    def check(self, scenario: Any) -> Iterable[Problem]:
        wanted = scenario.devices.participants or scenario.devices.count
        if self.ready > wanted:
            text = f"got {self.ready:g}; must be at most {wanted}, the number of participants"
            yield make_problem(
                text, "devices.protocol.ready", "devices.participants", "devices.count"
            )
