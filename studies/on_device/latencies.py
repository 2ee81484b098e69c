"""Latencies of exported models: a table of numbers, its file and its Markdown.

Latencies are those of one machine and hour, so they are kept in a file and not measured again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from studies.common.tables import print_head, print_row, read_lines, write_lines

NAME = "on_device.csv"
AGAIN = "dense, again"
"""The dense model beside itself."""


@dataclass(frozen=True)
class Latency:
    """Latency of one model in one runtime: median and ends over repeats.

    A ratio is the latency of the dense model over this one's, within a repeat.
    """

    width: str
    runtime: str
    model: str
    parameters: int
    multiplications: int
    accuracy: float
    file_bytes: int | None
    median_us: float
    least_us: float
    most_us: float
    ratio: float
    least_ratio: float
    most_ratio: float


def write_rows(rows: Iterable[Latency], path: Path) -> None:
    """Write a file with a line for each latency."""
    write_lines(path, [one.name for one in fields(Latency)], map(astuple, rows))


def read_rows(path: Path) -> list[Latency]:
    """Read what `write_rows` wrote."""
    return [_parse_row(line) for line in read_lines(path)]


def _parse_row(line: dict[str, str]) -> Latency:
    words = {name: line.pop(name) for name in ("width", "runtime", "model")}
    size = line.pop("file_bytes")
    counts = {name: int(line.pop(name)) for name in ("parameters", "multiplications")}
    rest = {name: float(value) for name, value in line.items()}
    return Latency(**words, **counts, file_bytes=int(size) if size else None, **rest)


def split_by_runtime(rows: list[Latency]) -> Iterator[tuple[str, str, list[Latency]]]:
    """Yield width, runtime and the latencies of each panel."""
    for width, runtime in dict.fromkeys((row.width, row.runtime) for row in rows):
        yield width, runtime, [r for r in rows if (r.width, r.runtime) == (width, runtime)]


def print_tables(rows: list[Latency]) -> None:
    """Print for each width the models, and how much faster than the dense one each runtime is."""
    for width in dict.fromkeys(row.width for row in rows):
        panels = [(runtime, here) for of, runtime, here in split_by_runtime(rows) if of == width]
        heads = (f"{runtime}: median, us; dense / model (range)" for runtime, _ in panels)
        print_head(f"Hidden layers {width}", "model", "multiplications", "accuracy", *heads)
        for same in zip(*(here for _, here in panels), strict=True):
            cells = (
                f"{row.median_us:.3g}; {row.ratio:.3g} ({row.least_ratio:.3g} to "
                f"{row.most_ratio:.3g})"
                for row in same
            )
            first = same[0]
            print_row(first.model, f"{first.multiplications:,}", f"{first.accuracy:.4f}", *cells)
