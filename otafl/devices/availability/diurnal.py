"""Presence with a probability that follows the time of day.

The presence of a device is a two-state process. At time t the device is present with probability
p(t) = m + a cos(w (t - peak)), w = 2 pi / period. A present device leaves at the constant rate 1 /
s, so its sessions are exponential with mean s. An absent one returns at the rate r(t). The forward
equation p' = r (1 - p) - p / s (Kolmogorov) then gives

    r(t) = (p'(t) + p(t) / s) / (1 - p(t))                                                      (1)

which is not negative as long as a sqrt(1 + (w s)^2) <= m. Times of return are drawn by thinning
(Lewis and Shedler), with a bound for each hour.

By default the probability is four times as high at its peak, at night, as at its lowest. Bonawitz
et al. observed this for phones that take part when they are idle and charging. The mean, the hour
and the length of a session are conventions.

References
----------
Bonawitz, Eichner, Grieskamp, Huba, Ingerman, Ivanov, Kiddon, Konečný, Mazzocchi, McMahan, Van
    Overveldt, Petrou, Ramage, Roselander 2019, "Towards Federated Learning at Scale: System
    Design".
Lewis, Shedler 1979, "Simulation of Nonhomogeneous Poisson Processes by Thinning".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from otafl.devices.availability.base import MAX_S, MIN_S, Availability, AvailabilitySetup, Life

HOURS = 24


class DiurnalAvailability(Availability):
    """Availability with a daily period."""

    class Settings(Availability.Settings):
        name: Literal["diurnal"] = "diurnal"
        mean: float = Field(0.5, gt=0, lt=1)
        """probability m that a device is present, averaged over a day"""
        amplitude: float = Field(0.3, ge=0, lt=1)
        """increase a of that probability at the peak"""
        mean_session_s: float = Field(3600.0, ge=MIN_S, le=MAX_S)
        """mean seconds s that a device stays"""
        period_s: float = Field(86400.0, ge=MIN_S, le=MAX_S)
        """seconds of a day, which has 24 hours"""
        peak_hour: float = Field(2.0, ge=0, le=24)
        """hour of the peak, from 0 to 24"""
        spread_hours: float = Field(0.0, ge=0, le=24)
        """range of hours around peak_hour in which each device has its own peak, uniformly
        distributed; it models time zones and habits"""
        start_hour: float = Field(0.0, ge=0, le=24)
        """hour at which the simulation starts"""

        def find_conflicts(self) -> Iterator[str]:
            if self.mean + self.amplitude >= 1:
                yield (
                    f"amplitude: got {self.amplitude:g}, but the probability at the peak must be "
                    f"below 1; with mean: {self.mean:g}, use less than {1 - self.mean:g}"
                )
            # beyond this bound the rate of return would have to be negative
            most = self.mean / math.hypot(1, 2 * math.pi * self.mean_session_s / self.period_s)
            if self.amplitude > most:
                yield (
                    f"amplitude: got {self.amplitude:g}, but devices that stay for mean_session_s "
                    f"({self.mean_session_s:g}) do not leave so fast; use at most {most:.4g}, or "
                    "shorter sessions"
                )

    def __init__(self, settings: Settings, setup: AvailabilitySetup) -> None:
        super().__init__(settings, setup)
        self._turn = 2 * math.pi / settings.period_s  # w
        self._hour_s = settings.period_s / HOURS
        rising = settings.amplitude * self._turn  # largest p'
        self._most = []
        for hour in range(HOURS):  # counted from the peak; p falls for the first half of the day
            ends = (
                self._compute_share(hour * self._hour_s),
                self._compute_share((hour + 1) * self._hour_s),
            )
            change = rising if hour >= HOURS // 2 else 0.0
            numerator = change + max(ends) / settings.mean_session_s
            self._most.append(numerator / (1 - max(ends)))

    def list_changes(self, trial: int, device: int) -> Life:
        settings, draw = self.settings, self.setup.build_generator(trial, device)
        shift = settings.spread_hours * (draw.random() - 0.5)
        peak_s = (settings.peak_hour + shift - settings.start_hour) * self._hour_s
        there = bool(draw.random() < self._compute_share(-peak_s))
        now_s = 0.0
        if not there:
            yield now_s, False
        while True:
            if there:
                now_s += draw.exponential(settings.mean_session_s)
            else:
                now_s = peak_s + self._draw_return_s(now_s - peak_s, draw)
            there = not there
            yield now_s, there

    def _compute_share(self, at_s: float) -> float:
        """Compute p at seconds after a peak."""
        return self.settings.mean + self.settings.amplitude * math.cos(self._turn * at_s)

    def _compute_rate(self, at_s: float) -> float:
        """Compute r at seconds after a peak."""
        share = self._compute_share(at_s)
        change = -self.settings.amplitude * self._turn * math.sin(self._turn * at_s)
        return (change + share / self.settings.mean_session_s) / (1 - share)  # eq. (1)

    def _draw_return_s(self, at_s: float, draw: np.random.Generator) -> float:
        """Draw the return of a device absent at an instant, both in seconds after a peak."""
        hour = math.floor(at_s / self._hour_s)
        while True:
            most = self._most[hour % HOURS]
            next_s = at_s + draw.exponential(1 / most)
            hour_ends_s = (hour + 1) * self._hour_s
            if next_s >= hour_ends_s:  # memoryless: start again with the bound of the next hour
                at_s, hour = hour_ends_s, hour + 1
                continue
            at_s = next_s
            if draw.random() * most < self._compute_rate(at_s):
                return at_s
