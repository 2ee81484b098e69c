"""Read rows of numbers from a CSV file that the user wrote, with errors that say where."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass

from otafl.core.errors import UserError
from otafl.core.inputs import MIB, read_bytes

MAX_BYTES = 256 * MIB
"""Of a table: a million devices take about a fifth of it."""

Lines = list[tuple[int, list[str]]]
"""Number and cells of each line."""


@dataclass(frozen=True)
class Row:
    """Hold a row. line: of the file. values: column -> number, empty cells left out."""

    line: int
    values: dict[str, float]


def _read_cells(file: str, key: str, known: Sequence[str]) -> tuple[list[str], Lines]:
    """Return the header of a file, and line and cells of each row that is not blank."""

    def refusal(reason: str | None) -> UserError:
        columns = ", ".join(known)
        return UserError(
            f"{key}: '{file}' cannot be read ({reason}); a CSV file with columns of {columns} "
            "would do"
        )

    try:
        text = read_bytes(file, MAX_BYTES).decode("utf-8-sig")
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


def read(file: str, key: str, known: Sequence[str], infinite: Sequence[str] = ()) -> list[Row]:
    """Return the rows of a file whose first line names its columns, of those `known`. infinite:
    columns whose numbers may be.

    Raises
    ------
    UserError
        Where the file is anything else. It begins with the scenario's key and names file, line and
        column.
    """
    header, lines = _read_cells(file, key, known)
    for name in header:
        if name not in known or header.count(name) > 1:
            what = "occurs twice" if name in known else f"is not known; known: {', '.join(known)}"
            raise UserError(f"{key}: '{file}', line 1: column '{name}' {what}")
    if not lines:
        raise UserError(f"{key}: '{file}' has no rows below its first line")
    table = []
    for line, row in lines:
        where = f"{key}: '{file}', line {line}"
        if len(row) != len(header):
            raise UserError(f"{where}: has {len(row)} cells, and there are {len(header)} columns")
        values = {name: _parse_number(cell) for name, cell in zip(header, row, strict=True) if cell}
        for name, value in values.items():
            if not (math.isfinite(value) or (value == math.inf and name in infinite)):
                cell = row[header.index(name)]
                raise UserError(f"{where}, column '{name}': got '{cell}'; must be a finite number")
        table.append(Row(line, values))
    return table


def _parse_number(cell: str) -> float:
    """Return the number in a cell, NaN where there is none."""
    try:
        return float(cell)
    except ValueError:
        return math.nan
