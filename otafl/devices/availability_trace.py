"""Devices that are there in the intervals of a file, see `TraceAvailabilityConfig`. Intervals that
touch are one."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterator

from otafl.core.errors import UserError
from otafl.devices.availability import AvailabilitySetup, Life
from otafl.devices.config_availability import TraceAvailabilityConfig

COLUMNS = ("device", "start_s", "end_s")

Span = tuple[float, float]


class TraceAvailability:
    def __init__(self, config: TraceAvailabilityConfig, setup: AvailabilitySetup) -> None:
        self._repeat_s = config.repeat_s
        self._spans = read(config.file, config.repeat_s)

    def changes(self, trial: int, device: int) -> Life | None:
        spans = self._spans[device % len(self._spans)]
        if spans == [(0.0, math.inf if self._repeat_s is None else self._repeat_s)]:
            return None
        return self._life(spans)

    def _life(self, spans: list[Span]) -> Life:
        end_s = 0.0  # of the last interval
        for start_s, stop_s in self._repeated(spans):
            if start_s > end_s:
                yield end_s, False
                yield start_s, True
            end_s = stop_s
        if end_s < math.inf:
            yield end_s, False

    def _repeated(self, spans: list[Span]) -> Iterator[Span]:
        if self._repeat_s is None:
            yield from spans
            return
        for period in itertools.count():
            begins_s, ends_s = period * self._repeat_s, (period + 1) * self._repeat_s
            for start_s, stop_s in spans:
                whole = stop_s == self._repeat_s  # its end is the next period's start, to the bit
                yield begins_s + start_s, ends_s if whole else begins_s + stop_s


def read(file: str, repeat_s: float | None) -> list[list[Span]]:
    """The intervals of each of a file's devices, ascending and apart."""
    rows: dict[int, list[tuple[float, float, int]]] = {}
    for line, (name, start, end) in _cells(file):
        device = _number(file, line, "device", name)
        start_s = _number(file, line, "start_s", start)
        end_s = _number(file, line, "end_s", end)
        if device != int(device):
            raise _error(file, line, f"device: '{name}' is no whole number")
        if end_s <= start_s:
            raise _error(file, line, f"end_s: {end} is not after start_s, {start}")
        if repeat_s is not None and end_s > repeat_s:
            text = f"end_s: {end} is beyond devices.availability.repeat_s, {repeat_s:g}"
            raise _error(file, line, text)
        rows.setdefault(int(device), []).append((start_s, end_s, line))
    if not rows:
        raise UserError(
            f"devices.availability.file: '{file}' has no intervals; at least one row below "
            f"{','.join(COLUMNS)} would do"
        )
    return [_merged(file, device, sorted(rows[device])) for device in sorted(rows)]


def _merged(file: str, device: int, rows: list[tuple[float, float, int]]) -> list[Span]:
    spans: list[Span] = []
    for start_s, end_s, line in rows:
        if spans and start_s < spans[-1][1]:
            text = f"start_s: {start_s:g} is inside another interval of device {device}"
            raise _error(file, line, text)
        if spans and start_s == spans[-1][1]:
            spans[-1] = spans[-1][0], end_s
        else:
            spans.append((start_s, end_s))
    return spans


def _cells(file: str) -> Iterator[tuple[int, list[str]]]:
    """Line number, from 1, and the cells of each row, in the order of COLUMNS."""
    try:
        with open(file, encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text, skipinitialspace=True)
            header = [cell.strip() for cell in next(reader, [])]
            if sorted(header) != sorted(COLUMNS):
                what = f"the columns are {','.join(header)}" if header else "it is empty"
                raise _error(file, 1, f"{what}; {','.join(COLUMNS)} would do")
            order = [header.index(column) for column in COLUMNS]
            for row in reader:
                if not any(cell.strip() for cell in row):
                    continue
                if len(row) != len(COLUMNS):
                    raise _error(file, reader.line_num, f"{len(row)} values, and there must be 3")
                yield reader.line_num, [row[column].strip() for column in order]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(
            f"devices.availability.file: '{file}' cannot be read ({reason}); a CSV file with the "
            f"columns {','.join(COLUMNS)} would do"
        ) from error


def _number(file: str, line: int, column: str, text: str) -> float:
    """At least 0; only an end can be infinite."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0 or (value == math.inf and column != "end_s"):
        raise _error(file, line, f"{column}: '{text}' is no number of at least 0")
    return value


def _error(file: str, line: int, text: str) -> UserError:
    return UserError(f"devices.availability.file: '{file}', line {line}: {text}")
