"""Presence in the intervals of a CSV file.

The file has the columns device,start_s,end_s and a row for each interval. Intervals that touch are
one. `device` is a whole number. The devices of the scenario take the lives of the file's devices in
ascending order, and repeat them if there are more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from otafl.core.errors import UserError
from otafl.devices import csv_table
from otafl.devices.availability.base import MAX_S, MIN_S, Availability, AvailabilitySetup, Life

KEY = "devices.availability.file"
COLUMNS = ("device", "start_s", "end_s")

Span = tuple[float, float]


class TraceAvailability(Availability):
    """Availability from a file.

    The constructor raises UserError if the file cannot be read or contains anything else.
    """

    class Settings(Availability.Settings):
        example: ClassVar = {KEY: "availability.csv"}

        name: Literal["trace"] = "trace"
        file: str = Field(min_length=1)
        """CSV file with the columns device,start_s,end_s"""
        repeat_s: float | None = Field(None, ge=MIN_S, le=MAX_S)
        """period in seconds with which the file repeats, at least its last end_s; if not given,
        devices stay away after their last interval"""

    def __init__(self, settings: Settings, setup: AvailabilitySetup) -> None:
        super().__init__(settings, setup)
        self._repeat_s = settings.repeat_s
        self._spans = read(settings.file, settings.repeat_s)

    def list_changes(self, trial: int, device: int) -> Life | None:
        spans = self._spans[device % len(self._spans)]
        if spans == [(0.0, math.inf if self._repeat_s is None else self._repeat_s)]:
            return None
        return self._yield_life(spans)

    def _yield_life(self, spans: list[Span]) -> Life:
        """Yield the changes of a device with these intervals."""
        end_s = 0.0  # end of the last interval
        for start_s, stop_s in self._repeat_spans(spans):
            if start_s > end_s:
                yield end_s, False
                yield start_s, True
            end_s = stop_s
        if end_s < math.inf:
            yield end_s, False

    def _repeat_spans(self, spans: list[Span]) -> Iterator[Span]:
        """Yield the intervals of all periods."""
        if self._repeat_s is None:
            yield from spans
            return
        for period in itertools.count():
            begins_s, ends_s = period * self._repeat_s, (period + 1) * self._repeat_s
            for start_s, stop_s in spans:
                whole = stop_s == self._repeat_s  # the end is exactly the start of the next period
                yield begins_s + start_s, ends_s if whole else begins_s + stop_s


def read(file: str, repeat_s: float | None) -> list[list[Span]]:
    """Return the intervals of each device of a file, ascending and disjoint."""
    last_s = math.inf if repeat_s is None else repeat_s
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
        elif end_s > last_s:
            fault = (
                f"end_s: got {end_s:g}; must be at most devices.availability.repeat_s ({last_s:g})"
            )
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
