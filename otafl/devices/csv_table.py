"""Rows of numbers from a user's CSV file, with errors that name the line."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass

from otafl.core.errors import UserError
from otafl.core.files import MIB, read_bytes

MAX_BYTES = 256 * MIB
"""Largest size of a table; a million devices take about a fifth of it."""

Lines = list[tuple[int, list[str]]]
"""Line number and cells of each row."""


@dataclass(frozen=True)
class Row:
    """Row of a table.

    Parameters
    ----------
    line : int
        Number of its line in the file.
    values : dict of str to float
        Column -> number, without empty cells.
    """

    line: int
    values: dict[str, float]


def _read_cells(file: str, key: str, known: Sequence[str]) -> tuple[list[str], Lines]:
    """Return the header of a file, and line number and cells of each row that is not blank."""

    def refusal(reason: str | None) -> UserError:
        columns = ", ".join(known)
        return UserError(
            f"{key}: '{file}' cannot be read ({reason}); must be a CSV file with columns of "
            f"{columns}"
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
    """Read the rows of a CSV file whose first line names its columns.

    Parameters
    ----------
    file : str
        Path of the file.
    key : str
        Key of the scenario that names the file, for messages.
    known : Sequence of str
        Possible columns.
    infinite : Sequence of str
        Columns that can contain inf.

    Returns
    -------
    list of Row
        Rows in the order of the file.

    Raises
    ------
    UserError
        If the file is no such table. The message names key, file, line and column.
    """
    header, lines = _read_cells(file, key, known)
    for name in header:
        if name not in known or header.count(name) > 1:
            what = "occurs twice" if name in known else f"is unknown; known: {', '.join(known)}"
            raise UserError(f"{key}: '{file}', line 1: column '{name}' {what}")
    if not lines:
        raise UserError(f"{key}: '{file}' has no rows below its first line; add one per device")
    table = []
    for line, row in lines:
        where = f"{key}: '{file}', line {line}"
        if len(row) != len(header):
            raise UserError(f"{where}: got {len(row)} cells; must be {len(header)}, one per column")
        values = {name: _parse_number(cell) for name, cell in zip(header, row, strict=True) if cell}
        for name, value in values.items():
            if not (math.isfinite(value) or (value == math.inf and name in infinite)):
                cell = row[header.index(name)]
                raise UserError(f"{where}, column '{name}': got '{cell}'; must be a finite number")
        table.append(Row(line, values))
    return table


def _parse_number(cell: str) -> float:
    """Return the number in a cell, NaN if it is none."""
    try:
        return float(cell)
    except ValueError:
        return math.nan
