"""Availability of devices: each device leaves and returns independently of the others."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

import numpy as np
from pydantic import Field

from otafl.core import settings
from otafl.core.errors import UserError
from otafl.core.rng import Streams, declare_purpose
from otafl.devices import csv_table

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


@dataclass(frozen=True)
class AvailabilitySetup:
    """Parameters that every availability is built from.

    Parameters
    ----------
    devices : int
        Number of devices K.
    streams : Streams
        Random streams of S trials.
    """

    devices: int
    streams: Streams

    def build_generator(self, trial: int, device: int) -> np.random.Generator:
        """Return the random generator of a device's life in a trial, at its start."""
        return np.random.Generator(np.random.Philox(self._seed_streams(device)[trial]))

    @functools.cached_property
    def _seed_streams(self) -> Callable[[int], list[int]]:
        """The function device -> seeds of its lives, one for each trial."""
        return functools.lru_cache(maxsize=4096)(functools.partial(self.streams.draw_seeds, LIVES))


class Availability(ABC):
    """Presence of the devices over time.

    Parameters
    ----------
    settings : Availability.Settings
        Settings of the component.
    setup : AvailabilitySetup
        Number of devices, and random streams.
    """

    leave: ClassVar[bool] = True
    """Whether devices can leave; otherwise `list_changes` is never called."""

    class Settings(settings.Settings):
        """Section `devices.availability` of a scenario."""

    def __init__(self, settings: Any, setup: AvailabilitySetup) -> None:
        self.settings, self.setup = settings, setup

    @abstractmethod
    def list_changes(self, trial: int, device: int) -> Life | None:
        """Return the life of a device in a trial.

        Parameters
        ----------
        trial, device : int
            Numbers of trial and device.

        Returns
        -------
        Life, optional
            Changes of its presence; None for a device that never leaves.
        """


class Lives(Sequence[Life | None]):
    """Lives of a trial's devices, each started anew at every access.

    Parameters
    ----------
    availability : Availability
        Law of the lives.
    trial : int
        Number of the trial.
    devices : int
        Number of devices K.
    """

    def __init__(self, availability: Availability, trial: int, devices: int) -> None:
        self._availability, self._trial, self._devices = availability, trial, devices

    @overload
    def __getitem__(self, device: int) -> Life | None: ...
    @overload
    def __getitem__(self, device: slice) -> list[Life | None]: ...
    def __getitem__(self, device: int | slice) -> Life | list[Life | None] | None:
        if isinstance(device, slice):
            return [self[k] for k in range(*device.indices(len(self)))]
        if not 0 <= device < self._devices:
            raise IndexError(f"device: got {device}; must be in 0..{self._devices - 1}")
        return self._availability.list_changes(self._trial, device)

    def __len__(self) -> int:
        """Return K."""
        return self._devices


class AlwaysAvailable(Availability):
    """All devices present all the time."""

    leave: ClassVar[bool] = False

    class Settings(Availability.Settings):
        name: Literal["always"] = "always"

    def list_changes(self, trial: int, device: int) -> None:
        return None


class MarkovAvailability(Availability):
    """Presence and absence of exponential lengths, independent for each device.

    It is the two-state Markov process of Gilbert, with rates 1 / mean_on_s and 1 / mean_off_s. It
    starts in its stationary distribution, so a device is present with probability mean_on_s /
    (mean_on_s + mean_off_s) at all times. The default lengths are a convention.

    References
    ----------
    Gilbert 1960, "Capacity of a Burst-Noise Channel".
    """

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


HOURS, HOUR_S, DAY_S = 24, 3600.0, 86400.0


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

    class Settings(Availability.Settings):
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
            most = self.mean / math.hypot(1, 2 * math.pi * self.mean_session_s / DAY_S)
            if self.amplitude > most:
                yield (
                    f"amplitude: got {self.amplitude:g}, but devices that stay for mean_session_s "
                    f"({self.mean_session_s:g}) do not leave so fast; use at most {most:.4g}, or "
                    "shorter sessions"
                )

    def __init__(self, settings: Settings, setup: AvailabilitySetup) -> None:
        super().__init__(settings, setup)
        self._turn = 2 * math.pi / DAY_S  # w
        rising = settings.amplitude * self._turn  # largest p'
        self._most = []
        for hour in range(HOURS):  # counted from the peak; p falls for the first half of the day
            ends = (
                self._compute_share(hour * HOUR_S),
                self._compute_share((hour + 1) * HOUR_S),
            )
            change = rising if hour >= HOURS // 2 else 0.0
            numerator = change + max(ends) / settings.mean_session_s
            self._most.append(numerator / (1 - max(ends)))

    def list_changes(self, trial: int, device: int) -> Life:
        settings, draw = self.settings, self.setup.build_generator(trial, device)
        shift = settings.spread_hours * (draw.random() - 0.5)
        peak_s = (settings.peak_hour + shift) * HOUR_S
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
        hour = math.floor(at_s / HOUR_S)
        while True:
            most = self._most[hour % HOURS]
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

Span = tuple[float, float]


class TraceAvailability(Availability):
    """Presence in the intervals of a CSV file.

    The file has the columns device,start_s,end_s and a row for each interval. Intervals that touch
    are one. `device` is a whole number. The devices of the scenario take the lives of the file's
    devices in ascending order, and repeat them if there are more.
    """

    class Settings(Availability.Settings):
        example: ClassVar = {KEY: "availability.csv"}

        name: Literal["trace"] = "trace"
        file: str = Field(min_length=1)
        """CSV file with the columns device,start_s,end_s"""

    def __init__(self, settings: Settings, setup: AvailabilitySetup) -> None:
        super().__init__(settings, setup)
        self._spans = read(settings.file)

    def list_changes(self, trial: int, device: int) -> Life | None:
        spans = self._spans[device % len(self._spans)]
        return None if spans == [(0.0, math.inf)] else self._yield_life(spans)

    def _yield_life(self, spans: list[Span]) -> Life:
        """Yield the changes of a device with these intervals."""
        end_s = 0.0  # end of the last interval
        for start_s, stop_s in spans:
            if start_s > end_s:
                yield end_s, False
                yield start_s, True
            end_s = stop_s
        if end_s < math.inf:
            yield end_s, False


def read(file: str) -> list[list[Span]]:
    """Return the intervals of each device of a file, ascending and disjoint."""
    rows: dict[int, list[tuple[float, float, int]]] = {}
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
            raise _build_error(file, row.line, fault)
        rows.setdefault(int(device), []).append((start_s, end_s, row.line))
    return [_merge_intervals(file, device, sorted(rows[device])) for device in sorted(rows)]


def _merge_intervals(file: str, device: int, rows: list[tuple[float, float, int]]) -> list[Span]:
    """Merge the intervals of a device that touch."""
    spans: list[Span] = []
    for start_s, end_s, line in rows:
        if spans and start_s < spans[-1][1]:
            text = (
                f"start_s: got {start_s:g}, inside another interval of device {device}; intervals "
                "must not overlap"
            )
            raise _build_error(file, line, text)
        if spans and start_s == spans[-1][1]:
            spans[-1] = spans[-1][0], end_s
        else:
            spans.append((start_s, end_s))
    return spans


def _build_error(file: str, line: int, text: str) -> UserError:
    """Return the error of a line."""
    return UserError(f"{KEY}: '{file}', line {line}: {text}")
