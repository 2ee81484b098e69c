"""Local work of one device, from the broadcast to its uplink slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

BEFORE = ("receive", "compute", "wait")
"""Activities of a device before its slot, in order."""


Value = TypeVar("Value")

ByDevice = Sequence[Value] | Mapping[int, Value]
"""A value for each device concerned, by the number of the device."""


class Interval(NamedTuple):
    """Interval of a timeline: one activity of a device.

    Parameters
    ----------
    device : int
        Number of the device.
    round : int
        Round in which the device started its update; -1 while the device is away.
    activity : str
        One of `otafl.devices.hardware.ACTIVITIES`.
    start_s, end_s : float
        Start and end in simulated seconds.
    """

    device: int
    round: int
    activity: str
    start_s: float
    end_s: float

    @property
    def has_duration(self) -> bool:
        """Whether the activity takes any time."""
        return self.end_s > self.start_s


@dataclass(frozen=True)
class WorkSlot:
    """Uplink slot of one trial.

    Parameters
    ----------
    opened_s : float
        Simulated time at which the slot opens.
    on_time : list of int
        Devices that transmit, in ascending order.
    started_round : list of int
        Round in which each of them started its update.
    """

    opened_s: float
    on_time: list[int]
    started_round: list[int]


@dataclass(eq=False)
class LocalWork:
    """Local work of one device for one update.

    Parameters
    ----------
    device : int
        Number of the device.
    round : int
        Round in which it starts.
    sent_s, began_s, ready_s : float
        Start of the broadcast, its end, and the instant at which the update is ready.
    compute_w : float
        Power of the local work.
    """

    device: int
    round: int
    sent_s: float
    began_s: float
    ready_s: float
    compute_w: float
    ready: bool = False
    lost: bool = False

    def list_intervals(self, now_s: float) -> list[Interval]:
        """Return the intervals of the device's activities for this update until now."""
        times = (self.sent_s, self.began_s, self.ready_s, now_s)
        return [
            Interval(self.device, self.round, activity, start_s, min(end_s, now_s))
            for activity, start_s, end_s in zip(BEFORE, times, times[1:], strict=False)
        ]
