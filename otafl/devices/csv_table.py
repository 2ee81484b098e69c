"""Rows of numbers from a CSV file that the user wrote, with errors that say where."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from otafl.core.errors import UserError


@dataclass(frozen=True)
class Row:
    """line: of the file. values: column -> number, empty cells left out."""

    line: int
    values: dict[str, float]


def read(file: str, key: str, known: Sequence[str], needed: Sequence[str] = ()) -> list[Row]:
    """The rows of a file whose first line names its columns, of those `known`. UserError that
    begins with the scenario's key and names file, line and column where it is anything else."""
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"{key}: '{file}' cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{key}: '{file}' is no UTF-8 text (byte {error.start})") from error
    lines = csv.reader(text.splitlines())
    header = [name.strip() for name in next(lines, [])]
    for name in header:
        if name not in known or header.count(name) > 1:
            what = "occurs twice" if name in known else f"is not known; known: {', '.join(known)}"
            raise UserError(f"{key}: '{file}', line 1: column '{name}' {what}")
    for name in needed:
        if name not in header:
            raise UserError(f"{key}: '{file}', line 1: column '{name}' is missing")
    rows = [
        Row(lines.line_num, _numbers(cells, header, f"{key}: '{file}', line {lines.line_num}"))
        for cells in lines
        if any(cell.strip() for cell in cells)
    ]
    if not rows:
        raise UserError(f"{key}: '{file}' has no rows below its first line")
    for row in rows:
        for name in needed:
            if name not in row.values:
                raise UserError(f"{key}: '{file}', line {row.line}, column '{name}': is empty")
    return rows


def _numbers(cells: Sequence[str], header: Sequence[str], where: str) -> dict[str, float]:
    if len(cells) != len(header):
        raise UserError(f"{where}: has {len(cells)} cells, and there are {len(header)} columns")
    values = {}
    for name, cell in zip(header, cells, strict=True):
        if cell.strip():
            values[name] = _number(cell)
            if not math.isfinite(values[name]):
                raise UserError(
                    f"{where}, column '{name}': got '{cell.strip()}'; must be a finite number"
                )
    return values


def _number(cell: str) -> float:
    """NaN for what is none."""
    try:
        return float(cell)
    except ValueError:
        return math.nan
