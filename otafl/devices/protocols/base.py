"""Contract of a protocol: the rule for the opening of an uplink slot and for its devices."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from otafl.core.problems import Problem, make_problem
from otafl.core.settings import Settings

Late = Literal["drop", "next"]
"""Rule for a device that is not ready when the slot opens.

drop: its update is dropped. next: it continues, and transmits in the next slot at which it is
ready.
"""


@dataclass(frozen=True)
class Rules:
    """Rules for a trial's slots.

    Parameters
    ----------
    ready : float
        Number of devices that must be ready, inf for all that are at work; with 0, only the
        instants of `period_s` open a slot.
    period_s : float
        Seconds between these instants, inf without them.
    deadline_s : float
        Longest time from the start of a round to its slot, inf without a bound.
    max_ready : int, optional
        Largest number of devices in a slot, those that were ready first; no bound if not given.
    late : str
        Rule for the devices at work that are not ready.
    broadcast_first : bool
        Whether a slot opens only after the broadcast.
    """

    ready: float = math.inf
    period_s: float = math.inf
    deadline_s: float = math.inf
    max_ready: int | None = None
    late: Late = "drop"
    broadcast_first: bool = True


class Protocol(Settings):
    """Protocol of the slots. A protocol is its settings."""

    has_deadline: ClassVar[bool] = True
    """Whether a slot opens at `devices.deadline_s` at the latest."""

    goes_on: ClassVar[bool] = True
    """Whether devices that miss a slot continue, as participants until they are in one."""

    @abstractmethod
    def build_rules(self, deadline_s: float, late: Late) -> Rules:
        """Build the rules of a trial.

        Parameters
        ----------
        deadline_s : float
            Seconds from the start of a round to its slot, inf without a deadline.
        late : str
            Value of `devices.late`.

        Returns
        -------
        Rules
            Rules of the trial's slots.
        """

    def check(self, scenario: Any) -> Iterable[Problem]:
        deadline_s = scenario.devices.deadline_s
        if deadline_s is not None and not self.has_deadline:
            text = (
                f"got {deadline_s:g}, but protocol '{scenario.devices.protocol.name}' has no "
                "deadline; leave it out, or use devices.protocol: rounds or quorum"
            )
            yield make_problem(text, "devices.deadline_s", "devices.protocol")
