"""Availability of devices that see one satellite in a circular orbit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from otafl.core.orbits import compute_pass_s, compute_relative_speed
from otafl.devices.availability import MAX_S, Availability, Life


class OrbitAvailability(Availability):
    """Presence while a satellite in a circular orbit is above an elevation.

    All devices are at one place, so they are present at the same times. A pass follows the closed
    form of `otafl.core.orbits`, in which the ground track is a great circle over the rotating
    Earth, and all passes have the same highest elevation.

    References
    ----------
    Ali, Al-Dhahir, Hershey 1998, "Doppler Characterization for LEO Satellites", IEEE Transactions
        on Communications 46(3).
    """

    name: Literal["orbit"] = "orbit"
    altitude_m: float = Field(600e3, ge=160e3, le=35e6)
    """altitude of the satellite in metres"""
    inclination_deg: float = Field(90.0, ge=0, le=180)
    """inclination of the orbit in degrees"""
    lowest_deg: float = Field(10.0, ge=0, lt=90)
    """elevation in degrees above which the devices can transmit"""
    highest_deg: float = Field(90.0, gt=0, le=90)
    """elevation in degrees in the middle of a pass"""
    first_pass_s: float = Field(0.0, ge=0, le=MAX_S)
    """seconds until the first pass begins"""
    period_s: float | None = Field(None, gt=0, le=MAX_S)
    """seconds between the beginnings of two passes; by default one revolution over the ground"""

    @property
    def pass_s(self) -> float:
        """Duration of a pass in seconds."""
        return compute_pass_s(
            self.altitude_m, self.inclination_deg, self.highest_deg, self.lowest_deg
        )

    @property
    def revisit_s(self) -> float:
        """Seconds between the beginnings of two passes."""
        speed = compute_relative_speed(self.altitude_m, self.inclination_deg)
        return self.period_s or 2.0 * math.pi / abs(speed)

    def find_conflicts(self) -> Iterator[str]:
        if self.lowest_deg >= self.highest_deg:
            yield (
                f"lowest_deg: got {self.lowest_deg:g}; must be below highest_deg "
                f"({self.highest_deg:g})"
            )
        elif self.period_s is not None and self.period_s <= self.pass_s:
            given_s, pass_s = self.period_s, self.pass_s
            yield f"period_s: got {given_s:g}; must be longer than a pass of {pass_s:.0f} s"

    def prepare_lives(self) -> Callable[[int, np.random.Generator], Life]:
        return lambda device, draw: self._yield_life()

    def _yield_life(self) -> Life:
        """Yield the beginnings and ends of the passes."""
        if self.first_pass_s > 0:
            yield 0.0, False
        for number in itertools.count():
            begin_s = self.first_pass_s + number * self.revisit_s
            if begin_s > 0:
                yield begin_s, True
            yield begin_s + self.pass_s, False
