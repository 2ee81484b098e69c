"""Define the contract of a protocol: when an uplink slot opens, and who is in it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from otafl.core.problems import Problem, make_problem
from otafl.core.settings import Settings

Late = Literal["drop", "next"]
"""What becomes of a device that is not ready when the uplink slot opens: its update is abandoned,
or it goes on and is admitted to the next slot at which it is ready."""


@dataclass(frozen=True)
class Rules:
    """Say when a trial's slots open, and who is in them.

    ready: devices that must be ready, or all that are at work; 0 opens at instants alone. period_s:
    between these. deadline_s: from the start of the round to the slot at the latest. max_ready:
    devices in a slot, those who were ready first. late: what becomes of those at work who are not
    ready.
    broadcast_first: whether the broadcast must be over.
    """

    ready: float = math.inf
    period_s: float = math.inf
    deadline_s: float = math.inf
    max_ready: int | None = None
    late: Late = "drop"
    broadcast_first: bool = True


class Protocol(Settings):
    """Say when slots open. A protocol is its settings."""

    has_deadline: ClassVar[bool] = True
    """A slot opens at `devices.deadline_s` at the latest."""

    goes_on: ClassVar[bool] = True
    """Devices that miss a slot go on, and count as participants until they are in one."""

    @abstractmethod
    def build_rules(self, deadline_s: float, late: Late) -> Rules:
        """Return the rules of a trial.

        Parameters
        ----------
        deadline_s : seconds from the start of a round to its slot, inf without a deadline.
        late : what `devices.late` says.
        """

    def check(self, scenario: Any) -> Iterable[Problem]:
        deadline_s = scenario.devices.deadline_s
        if deadline_s is not None and not self.has_deadline:
            text = (
                f"got {deadline_s:g}, but protocol '{scenario.devices.protocol.name}' has no "
                "deadline; leave it out, or devices.protocol: rounds or quorum would do"
            )
            yield make_problem(text, "devices.deadline_s", "devices.protocol")
