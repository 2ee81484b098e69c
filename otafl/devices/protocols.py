"""Protocols: rules for the instants at which uplink slots open, and for their devices."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from otafl.core.problems import Problem, make_problem
from otafl.core.settings import Settings, declare_stackable

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


class Rounds(Protocol):
    """Synchronous rounds: a slot when all participants are ready, or at the deadline.

    The deadline is devices.deadline_s after the broadcast starts. devices.late is the rule for
    participants that are not ready.
    """

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


class Periodic(Protocol):
    """Slots at a fixed period for the devices that are ready; the others continue."""

    has_deadline: ClassVar[bool] = False

    name: Literal["periodic"] = "periodic"
    period_s: float = declare_stackable(1.0, gt=0)
    """seconds between slots; a slot during an earlier transmission is skipped"""

    def build_rules(self, deadline_s: float, late: Late) -> Rules:
        return Rules(0, self.period_s, late="next", broadcast_first=False)


class Quorum(Protocol):
    """Slot as soon as M devices are ready (semi-asynchronous); the others continue.

    It opens at once if all devices at work are ready, and at devices.deadline_s after the last slot
    at the latest.

    References
    ----------
    Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba 2022, "Federated Learning with Buffered
        Asynchronous Aggregation".
    """

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


class Asynchronous(Protocol):
    """Transmission as soon as a device is ready and the uplink is free (asynchronous).

    The device that was ready first transmits first, and each has a slot of its own.

    References
    ----------
    Xie, Koyejo, Gupta 2019, "Asynchronous Federated Optimization".
    """

    has_deadline: ClassVar[bool] = False

    name: Literal["asynchronous"] = "asynchronous"

    def build_rules(self, deadline_s: float, late: Late) -> Rules:
        return Rules(1, max_ready=1, late="next", broadcast_first=False)
