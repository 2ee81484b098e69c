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
    try:
        text = read_bytes(file, MAX_BYTES).decode("utf-8-sig")
        reader = csv.reader(text.splitlines(), skipinitialspace=True)
        header = [cell.strip() for cell in next(reader, [])]
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{key}: '{file}' cannot be read ({getattr(error, 'strerror', '') or error}); must be "
            f"a CSV file with columns of {', '.join(known)}"
        ) from error
    lines = [(line, row) for line, row in rows if any(row)]
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
        values = {name: parse_number(cell) for name, cell in zip(header, row, strict=True) if cell}
        for name, value in values.items():
            if not (math.isfinite(value) or (value == math.inf and name in infinite)):
                cell = row[header.index(name)]
                raise UserError(f"{where}, column '{name}': got '{cell}'; must be a finite number")
        table.append(Row(line, values))
    return table


def parse_number(cell: str) -> float:
    """Return the number in a cell, NaN if it is none."""
    try:
        return float(cell)
    except ValueError:
        return math.nan
