"""Follow one device's work between a broadcast and its slot, and record what it did when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import simpy

BEFORE = ("receive", "compute", "wait")
"""What a device does before its slot."""


Value = TypeVar("Value")

ByDevice = Sequence[Value] | Mapping[int, Value]
"""A value of each device that is concerned, by its number."""


class Interval(NamedTuple):
    """Hold what a device did, of `otafl.devices.activities.ACTIVITIES`. `round` is the one in which
    its update was started; -1 for a device that was away."""

    device: int
    round: int
    activity: str
    start_s: float
    end_s: float

    @property
    def has_duration(self) -> bool:
        """Say whether it took any time."""
        return self.end_s > self.start_s


@dataclass(frozen=True)
class Slot:
    """Hold an uplink slot of one trial. Devices are in ascending order.

    opened_s: when. on_time: the devices that transmit. started_round: the round in which each
    started its update.
    """

    opened_s: float
    on_time: list[int]
    started_round: list[int]


class LocalWork(simpy.Event):
    """Follow one device's work between a broadcast and its slot.

    As an event it says that the device is ready: a Timeout of our own, one object in the place of
    two. Then `computed` is called with it.
    """

    _ok, _value = True, None  # of an event that has succeeded
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
        """Return what the device did for it until now, before its slot."""
        times = (self.sent_s, self.began_s, self.ready_s, now_s)
        return [
            Interval(self.device, self.round, activity, start_s, min(end_s, now_s))
            for activity, start_s, end_s in zip(BEFORE, times, times[1:], strict=False)
        ]
