"""Presence and absence of exponential lengths, independent for each device.

It is the two-state Markov process of Gilbert, with rates 1 / mean_on_s and 1 / mean_off_s. It
starts in its stationary distribution, so a device is present with probability mean_on_s /
(mean_on_s + mean_off_s) at all times. The default lengths are a convention.

References
----------
Gilbert 1960, "Capacity of a Burst-Noise Channel".
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from otafl.devices.availability.base import MAX_S, MIN_S, Availability, Life


class MarkovAvailability(Availability):
    """Availability with exponential times of presence and absence."""

    class Settings(Availability.Settings):
        name: Literal["markov"] = "markov"
        mean_on_s: float = Field(600.0, ge=MIN_S, le=MAX_S)
        """mean seconds that a device stays"""
        mean_off_s: float = Field(600.0, ge=MIN_S, le=MAX_S)
        """mean seconds that a device is away"""

    def list_changes(self, trial: int, device: int) -> Life:
        draw = self.setup.build_generator(trial, device)
        off_s, on_s = means_s = self.settings.mean_off_s, self.settings.mean_on_s
        there = bool(draw.random() < on_s / (on_s + off_s))
        now_s = 0.0
        if not there:
            yield now_s, False
        while True:
            now_s += draw.exponential(means_s[there])
            there = not there
            yield now_s, there
