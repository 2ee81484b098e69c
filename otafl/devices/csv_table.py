"""Read rows of numbers from a CSV file that the user wrote, with errors that say where."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from otafl.core.errors import UserError


@dataclass(frozen=True)
class Row:
    """Hold a row. line: of the file. values: column -> number, empty cells left out."""

    line: int
    values: dict[str, float]


def cells(file: str, key: str, hint: str = "") -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the header of a file, and line and cells of each row that is not blank.

    Raises
    ------
    UserError
        Where it cannot be read. It begins with the scenario's key, and ends with the hint.
    """

    def refusal(reason: str | None) -> UserError:
        return UserError(f"{key}: '{file}' cannot be read ({reason}){hint}")

    try:
        text = Path(file).read_text(encoding="utf-8-sig")
        lines = csv.reader(text.splitlines(), skipinitialspace=True)
        header = [cell.strip() for cell in next(lines, [])]
        rows = [(lines.line_num, [cell.strip() for cell in row]) for row in lines]
    except OSError as error:
        raise refusal(error.strerror) from error
    except UnicodeDecodeError as error:
        raise refusal(f"no UTF-8 text, byte {error.start}") from error
    except csv.Error as error:
        raise refusal(str(error)) from error
    return header, [(line, row) for line, row in rows if any(row)]


def read(file: str, key: str, known: Sequence[str]) -> list[Row]:
    """Return the rows of a file whose first line names its columns, of those `known`.

    Raises
    ------
    UserError
        Where the file is anything else. It begins with the scenario's key and names file, line and
        column.
    """
    header, lines = cells(file, key)
    for name in header:
        if name not in known or header.count(name) > 1:
            what = "occurs twice" if name in known else f"is not known; known: {', '.join(known)}"
            raise UserError(f"{key}: '{file}', line 1: column '{name}' {what}")
    if not lines:
        raise UserError(f"{key}: '{file}' has no rows below its first line")
    return [
        Row(line, _numbers(row, header, f"{key}: '{file}', line {line}")) for line, row in lines
    ]


def _numbers(row: Sequence[str], header: Sequence[str], where: str) -> dict[str, float]:
    if len(row) != len(header):
        raise UserError(f"{where}: has {len(row)} cells, and there are {len(header)} columns")
    values = {}
    for name, cell in zip(header, row, strict=True):
        if cell:
            values[name] = number(cell)
            if not math.isfinite(values[name]):
                raise UserError(f"{where}, column '{name}': got '{cell}'; must be a finite number")
    return values


def number(cell: str) -> float:
    """Return the number in a cell, NaN where there is none."""
    try:
        return float(cell)
    except ValueError:
        return math.nan
