"""Availability of devices: each device leaves and returns independently of the others."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from otafl.core import csv_table
from otafl.core.errors import UserError
from otafl.core.rng import Streams, declare_purpose
from otafl.core.settings import Settings

LIVES = declare_purpose("availability", __name__)

MIN_S, MAX_S = 1e-3, 1e9
"""Shortest and longest mean times.

Shorter ones cause a million events in a quarter of an hour of one device, and longer ones exceed
thirty years, longer than any run.
"""

Life = Iterator[tuple[float, bool]]
"""Changes of a device's presence: seconds since the start, and whether it is present from then on.

Times rise and values alternate. A device that is absent at first begins with (0.0, False).
"""


class Availability(Settings):
    """Presence of the devices over time. An availability is its settings."""

    leave: ClassVar[bool] = True
    """Whether devices can leave; otherwise `build_lives` draws nothing."""

    @abstractmethod
    def prepare_lives(self) -> Callable[[int, np.random.Generator], Life]:
        """Return the function (device, its random generator) -> changes of its presence.

        Raises
        ------
        UserError
            If a file cannot be read.
        """


def build_lives(availability: Availability, devices: int, streams: Streams) -> list[list[Life]]:
    """Build the lives of K devices in S trials, [S][K]; without a list [K] if no device leaves.

    A life depends only on seed, trial and device.
    """
    if not availability.leave:
        return [[] for _ in range(streams.num_trials)]
    number = torch.arange(devices, device=streams.device)[:, None]
    seeds = streams.draw_seeds(LIVES, number)
    make_life = availability.prepare_lives()
    return [
        [make_life(k, np.random.Generator(np.random.Philox(one))) for k, one in enumerate(own)]
        for own in zip(*seeds, strict=True)
    ]


class AlwaysAvailable(Availability):
    """All devices present all the time."""

    leave: ClassVar[bool] = False

    name: Literal["always"] = "always"

    def prepare_lives(self) -> Callable[[int, np.random.Generator], Life]:
        return lambda device, draw: iter(())


class MarkovAvailability(Availability):
    """Presence and absence of exponential lengths, independent for each device.

    It is the two-state Markov process of Gilbert, with rates 1 / mean_on_s and 1 / mean_off_s. It
    starts in its stationary distribution, so a device is present with probability mean_on_s /
    (mean_on_s + mean_off_s) at all times. The default lengths are a convention.

    References
    ----------
    Gilbert 1960, "Capacity of a Burst-Noise Channel".
    """

    name: Literal["markov"] = "markov"
    mean_on_s: float = Field(600.0, ge=MIN_S, le=MAX_S)
    """mean seconds that a device stays"""
    mean_off_s: float = Field(600.0, ge=MIN_S, le=MAX_S)
    """mean seconds that a device is away"""

    def prepare_lives(self) -> Callable[[int, np.random.Generator], Life]:
        return lambda device, draw: self._yield_life(draw)

    def _yield_life(self, draw: np.random.Generator) -> Life:
        """Draw the changes of one device."""
        off_s, on_s = means_s = self.mean_off_s, self.mean_on_s
        there = bool(draw.random() < on_s / (on_s + off_s))
        now_s = 0.0
        if not there:
            yield now_s, False
        while True:
            now_s += draw.exponential(means_s[there])
            there = not there
            yield now_s, there


HOURS, HOUR_S, DAY_S = 24, 3600.0, 86400.0
TURN = 2 * math.pi / DAY_S
"""Angular frequency w of a day."""


class DiurnalAvailability(Availability):
    """Presence with a probability that follows the time of day.

    The presence of a device is a two-state process. At time t the device is present with
    probability p(t) = m + a cos(w (t - peak)), w = 2 pi / day. A present device leaves at the
    constant rate 1 / s, so its sessions are exponential with mean s. An absent one returns at the
    rate r(t). The forward equation p' = r (1 - p) - p / s (Kolmogorov) then gives

        r(t) = (p'(t) + p(t) / s) / (1 - p(t))                                                  (1)

    which is not negative as long as a sqrt(1 + (w s)^2) <= m. Times of return are drawn by thinning
    (Lewis and Shedler), with a bound for each hour.

    By default the probability is four times as high at its peak, at night, as at its lowest.
    Bonawitz et al. observed this for phones that take part when they are idle and charging. The
    mean, the hour and the length of a session are conventions.

    References
    ----------
    Bonawitz, Eichner, Grieskamp, Huba, Ingerman, Ivanov, Kiddon, Konečný, Mazzocchi, McMahan, Van
        Overveldt, Petrou, Ramage, Roselander 2019, "Towards Federated Learning at Scale: System
        Design".
    Lewis, Shedler 1979, "Simulation of Nonhomogeneous Poisson Processes by Thinning".
    """

    name: Literal["diurnal"] = "diurnal"
    mean: float = Field(0.5, gt=0, lt=1)
    """probability m that a device is present, averaged over a day"""
    amplitude: float = Field(0.3, ge=0, lt=1)
    """increase a of that probability at the peak"""
    mean_session_s: float = Field(3600.0, ge=MIN_S, le=MAX_S)
    """mean seconds s that a device stays"""
    peak_hour: float = Field(2.0, ge=0, le=24)
    """hour of the peak, from 0 to 24; the simulation starts at hour 0"""
    spread_hours: float = Field(0.0, ge=0, le=24)
    """range of hours around peak_hour in which each device has its own peak, uniformly
    distributed; it models time zones and habits"""

    def find_conflicts(self) -> Iterator[str]:
        if self.mean + self.amplitude >= 1:
            yield (
                f"amplitude: got {self.amplitude:g}, but the probability at the peak must be "
                f"below 1; with mean: {self.mean:g}, use less than {1 - self.mean:g}"
            )
        # beyond this bound the rate of return would have to be negative
        most = self.mean / math.hypot(1, TURN * self.mean_session_s)
        if self.amplitude > most:
            yield (
                f"amplitude: got {self.amplitude:g}, but devices that stay for mean_session_s "
                f"({self.mean_session_s:g}) do not leave so fast; use at most {most:.4g}, or "
                "shorter sessions"
            )

    def prepare_lives(self) -> Callable[[int, np.random.Generator], Life]:
        rising = self.amplitude * TURN  # largest p'
        bounds = []
        for hour in range(HOURS):  # counted from the peak; p falls for the first half of the day
            most = max(self._compute_share((hour + end) * HOUR_S) for end in (0, 1))
            change = rising if hour >= HOURS // 2 else 0.0
            bounds.append((change + most / self.mean_session_s) / (1 - most))
        return lambda device, draw: self._yield_life(draw, bounds)

    def _yield_life(self, draw: np.random.Generator, bounds: list[float]) -> Life:
        """Draw the changes of one device, with the bounds [24] of its rate of return."""
        shift = self.spread_hours * (draw.random() - 0.5)
        peak_s = (self.peak_hour + shift) * HOUR_S
        there = bool(draw.random() < self._compute_share(-peak_s))
        now_s = 0.0
        if not there:
            yield now_s, False
        while True:
            if there:
                now_s += draw.exponential(self.mean_session_s)
            else:
                now_s = peak_s + self._draw_return_s(now_s - peak_s, draw, bounds)
            there = not there
            yield now_s, there

    def _compute_share(self, at_s: float) -> float:
        """Compute p at seconds after a peak."""
        return self.mean + self.amplitude * math.cos(TURN * at_s)

    def _compute_rate(self, at_s: float) -> float:
        """Compute r at seconds after a peak."""
        share = self._compute_share(at_s)
        change = -self.amplitude * TURN * math.sin(TURN * at_s)
        return (change + share / self.mean_session_s) / (1 - share)  # eq. (1)

    def _draw_return_s(self, at_s: float, draw: np.random.Generator, bounds: list[float]) -> float:
        """Draw the return of a device absent at an instant, both in seconds after a peak."""
        hour = math.floor(at_s / HOUR_S)
        while True:
            most = bounds[hour % HOURS]
            next_s = at_s + draw.exponential(1 / most)
            hour_ends_s = (hour + 1) * HOUR_S
            if next_s >= hour_ends_s:  # memoryless: start again with the bound of the next hour
                at_s, hour = hour_ends_s, hour + 1
                continue
            at_s = next_s
            if draw.random() * most < self._compute_rate(at_s):
                return at_s


KEY = "devices.availability.file"
COLUMNS = ("device", "start_s", "end_s")

Span = tuple[float, float, int]
"""Start and end of an interval of presence, and its line in the file."""


class TraceAvailability(Availability):
    """Presence in the intervals of a CSV file.

    The file has the columns device,start_s,end_s and a row for each interval. Intervals that touch
    are one. `device` is a whole number. The devices of the scenario take the lives of the file's
    devices in ascending order, and repeat them if there are more.
    """

    example: ClassVar = {KEY: "availability.csv"}

    name: Literal["trace"] = "trace"
    file: str = Field(min_length=1)
    """CSV file with the columns device,start_s,end_s"""

    def prepare_lives(self) -> Callable[[int, np.random.Generator], Life]:
        spans = [[(start_s, end_s) for start_s, end_s, _ in own] for own in _read_spans(self.file)]
        return lambda device, draw: yield_life(spans[device % len(spans)])


def yield_life(spans: Iterable[tuple[float, float]]) -> Life:
    """Yield the changes of a device that is present in ascending intervals (start, end) in seconds.

    Intervals that touch are one, and only what is after time 0 counts.
    """
    end_s = 0.0  # end of the last interval
    for start_s, stop_s in spans:
        if stop_s <= 0.0:
            continue
        if start_s > end_s:
            yield end_s, False
            yield start_s, True
        end_s = stop_s
    if end_s < math.inf:
        yield end_s, False


def _read_spans(file: str) -> list[list[Span]]:
    """Return the intervals of each device of a file, ascending and disjoint."""
    rows: dict[int, list[Span]] = {}
    for row in csv_table.read(file, KEY, COLUMNS, infinite=("end_s",)):
        device, start_s, end_s = (row.values.get(name, math.nan) for name in COLUMNS)
        fault = ""
        if len(row.values) < len(COLUMNS):
            fault = f"must have a number in each of {', '.join(COLUMNS)}"
        elif device != int(device) or min(device, start_s) < 0:
            fault = (
                f"got device {device:g}, start_s {start_s:g}; must be at least 0, and device a "
                "whole number"
            )
        elif end_s <= start_s:
            fault = f"end_s: got {end_s:g}; must be after start_s ({start_s:g})"
        if fault:
            raise UserError(f"{KEY}: '{file}', line {row.line}: {fault}")
        rows.setdefault(int(device), []).append((start_s, end_s, row.line))
    spans = [sorted(rows[device]) for device in sorted(rows)]
    for device, own in zip(sorted(rows), spans, strict=True):
        for (_, end_s, _), (start_s, _, line) in itertools.pairwise(own):
            if start_s < end_s:
                raise UserError(
                    f"{KEY}: '{file}', line {line}: start_s: got {start_s:g}, inside another "
                    f"interval of device {device}; intervals must not overlap"
                )
    return spans
