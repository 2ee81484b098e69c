"""Say which devices of a large population are there, without following those nobody asks for.

In place of a process for each device, a device's life is gone through as far as somebody asks. Only
where devices neither draw power nor have batteries while nobody asks for them, and what they do is
not recorded: then it makes no difference to anything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from otafl.devices.availability import Life

MANY = 4096
"""Devices up to which each is followed."""

KEPT = 1 << 14
"""Devices of which it is kept how far their lives have been gone through; others' are gone through
again from the start."""


class Presence:
    """Ask for the devices of a trial, at instants that do not go back.

    lives: by device, None for one that never leaves; each call for a device begins its life anew.
    """

    def __init__(self, lives: Sequence[Life | None]) -> None:
        self._lives = lives
        self._known: dict[int, Course] = {}

    def get_course(self, device: int, now_s: float) -> Course:
        """Return the course of a device's life, gone through until now."""
        course = self._known.pop(device, None)
        if course is None:
            course = Course(self._lives[device])
        course.advance(now_s)
        self._known[device] = course
        if len(self._known) > KEPT:
            del self._known[next(iter(self._known))]  # who was not asked for the longest time
        return course

    def find_next_return_s(self, now_s: float) -> float:
        """Return when the first device comes back that is away now, inf if none ever will."""
        courses = (self.get_course(device, now_s) for device in range(len(self._lives)))
        return min((one.next_s for one in courses if not one.there), default=math.inf)


class Course:
    """Go through a life. there: whether the device is, now. next_s: when that changes, inf for
    never."""

    def __init__(self, life: Life | None) -> None:
        self.there, self._at_s = True, 0.0
        self._yield_life = life
        self._look_ahead()

    def advance(self, now_s: float) -> None:
        """Go on until now, and through what happens at this very instant."""
        while self.next_s <= now_s:
            self._at_s, self.there = self.next_s, self._next
            self._look_ahead()

    def _look_ahead(self) -> None:
        at_s, self._next = math.inf, self.there
        if self._yield_life is not None:
            at_s, self._next = next(self._yield_life, (math.inf, self.there))
        # as an event so long after the last one, to the bit
        self.next_s = self._at_s + (at_s - self._at_s) if at_s > self._at_s else self._at_s
