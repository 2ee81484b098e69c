"""Local work of one device, from the broadcast to its uplink slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import simpy

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
        One of `otafl.devices.activities.ACTIVITIES`.
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
class Slot:
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


class LocalWork(simpy.Event):
    """Local work of one device for one update, as a SimPy event.

    The event is processed when the update is ready, and calls `computed`. It is a timeout of its
    own class, so that one object is needed instead of two.
    """

    _ok, _value = True, None  # SimPy's state of an event that has succeeded
    ready = lost = False

    def __init__(
        self,
        env: simpy.Environment,
        device: int,
        round: int,
        downlink_s: float,
        compute_s: float,
        compute_w: float,
        computed: Callable[[simpy.Event], None],
    ) -> None:
        self.env, self.callbacks = env, [computed]
        delay, now_s = downlink_s + compute_s, env.now
        self.device = device
        self.round = round
        self.sent_s = now_s  # start of the broadcast
        self.began_s = now_s + downlink_s  # its end
        self.ready_s = now_s + delay
        self.compute_w = compute_w
        env.schedule(self, delay=delay)

    def list_intervals(self, now_s: float) -> list[Interval]:
        """Return the intervals of the device's activities for this update until now."""
        times = (self.sent_s, self.began_s, self.ready_s, now_s)
        return [
            Interval(self.device, self.round, activity, start_s, min(end_s, now_s))
            for activity, start_s, end_s in zip(BEFORE, times, times[1:], strict=False)
        ]
