"""Synchronous rounds: a slot when all participants are ready, or at the deadline.

The deadline is devices.deadline_s after the broadcast starts. devices.late is the rule for
participants that are not ready.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from otafl.core.problems import Problem, make_problem
from otafl.devices.protocols.base import Late, Protocol, Rules


class Rounds(Protocol):
    """Protocol with synchronous rounds."""

    goes_on: ClassVar[bool] = False

    name: Literal["rounds"] = "rounds"

    def build_rules(self, deadline_s: float, late: Late) -> Rules:
        return Rules(deadline_s=deadline_s, late=late)

    def check(self, scenario: Any) -> Iterable[Problem]:
        if scenario.devices.late == "next" and scenario.devices.deadline_s is None:
            text = (
                "'next' needs devices.deadline_s: without a deadline the slot waits for all "
                "participants, and none is late"
            )
            yield make_problem(text, "devices.late", "devices.deadline_s")
