"""Lay out a variable of a sweep in a table, by axes down and across: text, Markdown, LaTeX, CSV."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xarray as xr

from otafl.analysis.paired import compare_values
from otafl.analysis.points import (
    build_labels,
    format_label,
    format_short_label,
    get_label,
    get_unit,
    swap_to_coordinate,
)
from otafl.analysis.rows import TextTable
from otafl.analysis.summary import compute_moments, format_cell
from otafl.core.suggestions import make_unknown_name_error
from otafl.results.end_values import describe_diverged, select_end_total
from otafl.results.variables import get_better_direction

VARIABLE = "variable"
"""Coordinate across of a table with several variables."""


@dataclass(frozen=True)
class TableGrid:
    """Variables at the end of each trial, by axes down and across.

    Parameters
    ----------
    title : the variables in words, with their units.
    row_names, column_names : the coordinates that distinguish rows and columns; of several
        variables "variable" is the first across.
    labels : each of these coordinates -> its name in words.
    rows, columns : a text of each of these coordinates, for every row and every column.
    variables : name and units ("" for none) of every column.
    values : [rows, columns, trials], NaN where there is none.
    moment : when the values are taken.
    diverged : how many trials diverged and how they count, "" for none.
    """

    title: str
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    labels: Mapping[str, str]
    rows: list[tuple[str, ...]]
    columns: list[tuple[str, ...]]
    variables: list[tuple[str, str]]
    values: np.ndarray
    moment: str = "at the end"
    diverged: str = ""

    @property
    def caption(self) -> str:
        """Write what the table shows, and the number of trials."""
        trials = self.values.shape[-1]
        said = f"{self.title[:1].upper()}{self.title[1:]} {self.moment}"
        if trials == 1:
            return "; ".join(filter(None, (f"{said}, of n = 1 trial", self.diverged)))
        said += f", mean ± standard deviation over n = {trials} trials"
        counts = np.isfinite(self.values).sum(-1)
        if ((counts > 0) & (counts < trials)).any():
            said += ", or fewer where a cell states n"
        return "; ".join(filter(None, (said, self.diverged)))


def build_grid(
    ds: xr.Dataset,
    variables: str | Sequence[str],
    columns: Sequence[str] = (),
    units: bool = True,
) -> TableGrid:
    """Lay out variables at the end of each trial (`results.end_values.select_end_total`).

    Parameters
    ----------
    variables : one, or several, which are then across.
    columns : the axes across; all others are down.
    units : whether texts of coordinates have their units.

    Raises
    ------
    UserError : for what is not there.
    """
    names = [variables] if isinstance(variables, str) else list(dict.fromkeys(variables))
    for name in columns:
        ds = swap_to_coordinate(ds, name)
    ends = [select_end_total(ds, name) for name in names]
    down = [str(dim) for dim in ends[0].dims if dim not in (*columns, "trial")]
    row_names, row_texts = build_labels(ds, down, units)
    column_names, column_texts = build_labels(ds, columns, units)
    labels = {name: get_label(ds, name) for name in (*row_names, *column_names)}
    shape = (len(row_texts), len(column_texts), ds.sizes["trial"])
    blocks = [one.transpose(*down, *columns, "trial").values.reshape(shape) for one in ends]
    own_units = [get_unit(ds[name]) for name in names]
    heads: list[tuple[str, ...]] = [()]
    if len(names) > 1:
        heads = [(format_short_label(ds[name], name),) for name in names]
        column_names = (VARIABLE, *column_names)
    return TableGrid(
        ", ".join(re.sub(r",? so far", "", format_label(ds[name], name)) for name in names),
        row_names,
        column_names,
        labels,
        row_texts,
        [(*head, *texts) for head in heads for texts in column_texts],
        [one for one in zip(names, own_units, strict=True) for _ in column_texts],
        np.concatenate(blocks, 1),
        diverged=describe_diverged(ds),
    )


def find_best(table: TableGrid, over: str, level: float | None = None) -> np.ndarray:
    """Return which cells have the best mean of their group, [rows, columns] bool.

    The best is the largest where more of the variable is better, as of an accuracy, else the
    smallest. Variables are never compared with each other.

    Parameters
    ----------
    over : the group: "column", "row", or a coordinate over whose values, all others equal.
    level : only those that a paired t-test tells from every other of their group at this level,
        after Holm.

    Raises
    ------
    UserError : where `over` is none of these.
    """
    names = (*table.row_names, *table.column_names)
    if over not in ("row", "column", *names):
        raise make_unknown_name_error(over, "row, column or a coordinate of the table", over, names)
    cells = _build_frame(table)
    rows, columns = table.values.shape[:2]
    cells["row"] = np.repeat(np.arange(rows), columns)
    cells["column"] = np.tile(np.arange(columns), rows)
    others = [name for name in names if name not in (over, VARIABLE)]
    keys = ["variable", *([over] if over in ("row", "column") else others)]
    marked = np.zeros(len(cells), dtype=bool)
    trials = table.values.reshape(len(cells), -1)
    for _, group in cells.dropna(subset="mean").groupby(keys):
        is_largest = get_better_direction(group["variable"].iloc[0]) == "higher"
        won = group["mean"].idxmax() if is_largest else group["mean"].idxmin()
        rest = group.index.drop(won)
        if len(rest):
            marked[won] = level is None
            if level is not None:
                dims = ("other", "trial")
                lost = xr.DataArray(trials[rest], dims=dims)
                tests = compare_values(lost, xr.DataArray(trials[won], dims=dims[1:]))
                marked[won] = bool((tests["p_holm"] < level).all())
    return marked.reshape(rows, columns)


def build_text_table(table: TableGrid, bold: np.ndarray | None = None) -> TextTable:
    """Write the table as texts; `bold` [rows, columns] marks cells.

    A CSV file has a row a cell: the coordinates, the variable with its unit, mean, standard
    deviation, and n, the number of trials that they are of.
    """
    marks = np.zeros(table.values.shape[:2], bool) if bold is None else bold
    cells = [
        [_format_cell(trials, is_bold) for trials, is_bold in zip(values, bold_row, strict=True)]
        for values, bold_row in zip(table.values, marks, strict=True)
    ]
    names = [table.labels[name] for name in table.row_names]
    bare = [table.labels.get(name, name) for name in table.column_names]
    is_bare = re.compile(r"-?[\d.e+-]+").fullmatch  # a number that has no unit says nothing alone
    titles = [
        ", ".join(f"{a} {b}" if is_bare(b) else b for a, b in zip(bare, column, strict=True))
        for column in table.columns
    ]
    return TextTable(
        table.caption,
        [*names, *(titles if table.column_names else [table.title])],
        [[*texts, *row] for texts, row in zip(table.rows, cells, strict=True)],
        _build_frame(table),
        len(names),
    )


def _build_frame(table: TableGrid) -> pd.DataFrame:
    """Return the columns of a CSV file, and a row a cell."""
    skipped = int(table.column_names[:1] == (VARIABLE,))
    names = [*table.row_names, *table.column_names[skipped:]]
    rows = [
        (*row, *column[skipped:], name, units or "1", *compute_moments(trials))
        for row, values in zip(table.rows, table.values, strict=True)
        for column, (name, units), trials in zip(
            table.columns, table.variables, values, strict=True
        )
    ]
    return pd.DataFrame(rows, columns=[*names, "variable", "units", "mean", "std", "n"])


def _format_cell(trials: np.ndarray, is_bold: bool) -> str:
    """Write mean and deviation, between stars if bold, and n where that is not of all trials."""
    text, _, count = format_cell(trials).partition(" (")
    star = "**" if is_bold else ""
    return f"{star}{text}{star}" + (f" ({count}" if count else "")
