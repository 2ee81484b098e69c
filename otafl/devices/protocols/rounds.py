"""Open the slot when all who take part are ready, or at the deadline: rounds.

The server broadcasts, and the slot opens when all who take part are ready, or at devices.deadline_s
after the start; devices.late says what becomes of the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from otafl.core.problems import Problem, make_problem
from otafl.devices.protocols.base import Late, Protocol, Rules


class Rounds(Protocol):
    goes_on: ClassVar[bool] = False

    name: Literal["rounds"] = "rounds"

    def build_rules(self, deadline_s: float, late: Late) -> Rules:
        return Rules(deadline_s=deadline_s, late=late)

    def check(self, scenario: Any) -> Iterable[Problem]:
        if scenario.devices.late == "next" and scenario.devices.deadline_s is None:
            text = (
                "'next' needs devices.deadline_s: without a deadline the slot waits for everyone "
                "and nobody is late"
            )
            yield make_problem(text, "devices.late", "devices.deadline_s")
