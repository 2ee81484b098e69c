"""Presence of the devices of a large population, computed only for devices that are asked for.

A process for each device is too slow for large populations. A life is instead advanced when its
device is asked for. This is possible if resting devices draw no power, have no batteries and are
not recorded. It then changes no result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from otafl.devices.availability import Life

MANY = 4096
"""Largest number of devices for which each has a process of its own."""

KEPT = 1 << 14
"""Number of devices whose position in their life is cached; other lives start again from time 0."""


class Presence:
    """Presence of the devices of a trial, asked for at instants that never decrease.

    Parameters
    ----------
    lives : Sequence of Life or None
        Lives by device, None for a device that never leaves. Each access starts a life anew.
    """

    def __init__(self, lives: Sequence[Life | None]) -> None:
        self._lives = lives
        self._known: dict[int, Course] = {}

    def get_course(self, device: int, now_s: float) -> Course:
        """Return the course of a device's life, advanced until now."""
        course = self._known.pop(device, None)
        if course is None:
            course = Course(self._lives[device])
        course.advance(now_s)
        self._known[device] = course
        if len(self._known) > KEPT:
            del self._known[next(iter(self._known))]  # the least recently used
        return course

    def find_next_return_s(self, now_s: float) -> float:
        """Return the earliest return of a device that is away, inf if there is none."""
        courses = (self.get_course(device, now_s) for device in range(len(self._lives)))
        return min((one.next_s for one in courses if not one.there), default=math.inf)


class Course:
    """Position in the life of one device.

    Parameters
    ----------
    life : Life, optional
        The life, read as far as needed; None for a device that never leaves.

    Attributes
    ----------
    there : bool
        Whether the device is present.
    next_s : float
        Time of the next change, inf if there is none.
    """

    def __init__(self, life: Life | None) -> None:
        self.there, self._at_s = True, 0.0
        self._life = life
        self._look_ahead()

    def advance(self, now_s: float) -> None:
        """Advance until now, including the changes at this instant."""
        while self.next_s <= now_s:
            self._at_s, self.there = self.next_s, self._next
            self._look_ahead()

    def _look_ahead(self) -> None:
        """Read the next change of the life."""
        at_s, self._next = math.inf, self.there
        if self._life is not None:
            at_s, self._next = next(self._life, (math.inf, self.there))
        # rounded as SimPy rounds an event after a delay
        self.next_s = self._at_s + (at_s - self._at_s) if at_s > self._at_s else self._at_s
