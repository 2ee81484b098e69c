"""When devices are there: each leaves and comes back on its own, whatever it is doing.

`markov`: exponential times there and away, of rates 1 / mean_on and 1 / mean_off.

`diurnal`: a two-state process whose probability of being there is p(t) = m + a cos(w (t - peak)) at
every t, w = 2 pi / period. A device that is there leaves at the constant rate 1 / s, so that its
sessions are exponential of mean s; one that is away comes back at the rate r(t). The forward
equation p' = r (1 - p) - p / s (Kolmogorov) then gives

    r(t) = (p'(t) + p(t) / s) / (1 - p(t))                                                      (1)

which is not negative as long as a sqrt(1 + (w s)^2) <= m. Times of return are drawn by thinning
(Lewis and Shedler 1979, "Simulation of Nonhomogeneous Poisson Processes by Thinning") under a
bound for each hour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from otafl.core.rng import Streams
from otafl.devices.config_availability import (
    AlwaysAvailableConfig,
    DiurnalAvailabilityConfig,
    MarkovAvailabilityConfig,
)

HOURS = 24

Life = Iterator[tuple[float, bool]]


@dataclass(frozen=True)
class AvailabilitySetup:
    """What every law is built from: K devices, and the streams of S trials."""

    devices: int
    streams: Streams

    def seeds(self) -> list[list[int]]:
        """[K][S] seeds, one for the whole life of a device of a trial."""
        return [self.streams.seeds("availability", device) for device in range(self.devices)]


class Availability(Protocol):
    """Made as `implementation(config, setup)`."""

    def changes(self, trial: int, device: int) -> Life | None:
        """(seconds since the start, whether it is there from then on), times rising and values
        alternating; a device that is absent at first begins with (0.0, False). None for one that
        never leaves."""


class AlwaysAvailable:
    def __init__(self, config: AlwaysAvailableConfig, setup: AvailabilitySetup) -> None: ...

    def changes(self, trial: int, device: int) -> None:
        return None


class MarkovAvailability:
    def __init__(self, config: MarkovAvailabilityConfig, setup: AvailabilitySetup) -> None:
        self._means_s = (config.mean_off_s, config.mean_on_s)
        self._share = config.mean_on_s / (config.mean_on_s + config.mean_off_s)
        self._seeds = setup.seeds()

    def changes(self, trial: int, device: int) -> Life:
        draw = _generator(self._seeds[device][trial])
        there = bool(draw.random() < self._share)
        now_s = 0.0
        if not there:
            yield now_s, False
        while True:
            now_s += draw.exponential(self._means_s[there])
            there = not there
            yield now_s, there


class DiurnalAvailability:
    def __init__(self, config: DiurnalAvailabilityConfig, setup: AvailabilitySetup) -> None:
        self._config = config
        self._seeds = setup.seeds()
        self._turn = 2 * math.pi / config.period_s  # w
        self._hour_s = config.period_s / HOURS
        rising = config.amplitude * self._turn  # largest p'
        self._most = []
        for hour in range(HOURS):  # after the peak; p falls for the first half of the day
            ends = self._share(hour * self._hour_s), self._share((hour + 1) * self._hour_s)
            change = rising if hour >= HOURS // 2 else 0.0
            numerator = change + max(ends) / config.mean_session_s
            self._most.append(numerator / (1 - max(ends)))

    def changes(self, trial: int, device: int) -> Life:
        config, draw = self._config, _generator(self._seeds[device][trial])
        shift = config.spread_hours * (draw.random() - 0.5)
        peak_s = (config.peak_hour + shift - config.start_hour) * self._hour_s
        there = bool(draw.random() < self._share(-peak_s))
        now_s = 0.0
        if not there:
            yield now_s, False
        while True:
            if there:
                now_s += draw.exponential(config.mean_session_s)
            else:
                now_s = peak_s + self._return_s(now_s - peak_s, draw)
            there = not there
            yield now_s, there

    def _share(self, at_s: float) -> float:
        """p, so many seconds after a peak."""
        return self._config.mean + self._config.amplitude * math.cos(self._turn * at_s)

    def _rate(self, at_s: float) -> float:
        share = self._share(at_s)
        change = -self._config.amplitude * self._turn * math.sin(self._turn * at_s)
        return (change + share / self._config.mean_session_s) / (1 - share)  # eq. (1)

    def _return_s(self, at_s: float, draw: np.random.Generator) -> float:
        """When a device that is away at an instant comes back; both are seconds after a peak."""
        hour = math.floor(at_s / self._hour_s)
        while True:
            most = self._most[hour % HOURS]
            next_s = at_s + draw.exponential(1 / most)
            hour_ends_s = (hour + 1) * self._hour_s
            if next_s >= hour_ends_s:  # memoryless: begin again with the next hour's bound
                at_s, hour = hour_ends_s, hour + 1
                continue
            at_s = next_s
            if draw.random() * most < self._rate(at_s):
                return at_s


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))
