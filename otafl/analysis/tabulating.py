"""Tables of a variable over a sweep, by axes down and across: text, Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from otafl.analysis.figures import long_name, shown, unknown
from otafl.analysis.paired import compared, ended, holm
from otafl.analysis.summary import spread
from otafl.core.errors import UserError

Cell = tuple[str, str]
"""Mean and standard deviation as texts; the latter empty for one trial, both for none."""


@dataclass(frozen=True)
class Grid:
    """A variable at the end of each trial: values [rows, columns, trials], NaN where there is none.

    row_names, column_names: the coordinates that rows and columns are told apart by. rows,
    columns: a text of each of these coordinates, for every row and every column. across: what the
    columns are, in words.
    """

    variable: str
    title: str
    units: str
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    across: str
    rows: list[tuple[str, ...]]
    columns: list[tuple[str, ...]]
    values: np.ndarray

    @property
    def caption(self) -> str:
        """What the table shows, of how many trials."""
        trials = self.values.shape[-1]
        said = f"{self.title[:1].upper()}{self.title[1:]} at the end"
        if self.units != "1":
            said += f" [{self.units}]"
        if trials == 1:
            return f"{said}, of one trial"
        said += f", mean ± standard deviation over {trials} trials"
        lost = int((~np.isfinite(self.values)).sum())
        return f"{said}; {lost} of the values are missing or diverged" if lost else said


def labels(
    ds: xr.Dataset | xr.DataArray, dim: str, units: bool = True
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Names of the coordinates that tell the places along an axis apart, and their texts at each
    place. Of a joint axis (`zip`) these are the coordinates of its keys."""
    own = [str(name) for name, c in ds.coords.items() if c.dims == (dim,) and name != "final_round"]
    names = [name for name in own if name != "zip"] or [dim]
    said = [str(ds[name].attrs.get("units", "1")) if units else "" for name in names]
    ends = ["" if unit in ("1", "") else f" {unit}" for unit in said]
    rows = zip(*(ds[name].values for name in names), strict=True)
    texts = [tuple(shown(v) + end for v, end in zip(row, ends, strict=True)) for row in rows]
    return tuple(names), texts


def by_point(ds: xr.Dataset, keep: str | None = None) -> xr.Dataset:
    """The sweep's axes as one dim `point`, labelled by their coordinates; `keep` stays a dim of its
    own. A result without other axes has one point, labelled by its title."""
    axes = [str(dim) for dim in ds["final_round"].dims if dim != keep]
    if not axes:
        ends = ds["final_round"].expand_dims("point")
        flat = ds.expand_dims(point=[str(ds.attrs.get("title", ""))])
        return flat.assign_coords(final_round=ends.drop_vars("final_round"))
    _, texts = _crossed(ds, axes, units=False)
    flat = ds.stack(point=axes).reset_index("point")
    return flat.assign_coords(point=[", ".join(parts) for parts in texts])


def along(ds: xr.Dataset, name: str) -> xr.Dataset:
    """With an axis of that name: of a joint axis, one of its coordinates, if its values differ.
    Raises UserError for a result that has no such axis."""
    axes = ds["final_round"].dims
    if name in axes:
        return ds
    if name in ds.coords and ds[name].ndim == 1 and ds[name].dims[0] in axes:
        (dim,) = ds[name].dims
        if len(np.unique(ds[name].values)) == ds.sizes[dim]:
            return ds.swap_dims({dim: name})
        raise UserError(f"{name}: has equal values along {dim}; pick some with --sel, or use {dim}")
    if not axes:
        raise UserError(f"{name}: this result has no sweep, thus no such axis; sweep over it")
    raise unknown(name, "an axis of this result", name, axes)


def grid(
    ds: xr.Dataset,
    variable: str,
    columns: Sequence[str] = (),
    rows: Sequence[str] = (),
) -> Grid:
    """A variable (`paired.ended`) with the axes `columns` across, `rows`, then all others, down.

    Raises UserError for what is not there.
    """
    for name in (*columns, *rows):
        ds = along(ds, name)
    if twice := sorted(set(rows) & set(columns)):
        raise UserError(f"{twice[0]}: cannot be both of the rows and of the columns")
    values = ended(ds, variable)
    down = [*rows, *(str(d) for d in values.dims if d not in (*columns, *rows, "trial"))]
    table = values.transpose(*down, *columns, "trial")
    row_names, row_texts = _crossed(ds, down)
    column_names, column_texts = _crossed(ds, columns)
    return Grid(
        variable,
        re.sub(r",? so far", "", str(values.attrs.get("long_name", variable.replace("_", " ")))),
        str(ds[variable].attrs.get("units", "1")),
        row_names,
        column_names,
        ", ".join(long_name(ds, name) for name in column_names),
        row_texts,
        column_texts,
        table.values.reshape(len(row_texts), len(column_texts), -1),
    )


def best(
    table: Grid, over: str, largest: bool | None = None, level: float | None = None
) -> np.ndarray:
    """Which cells [rows, columns] have the best mean: of their column (over: "column"), of their
    row, or over the values of one coordinate (its name), all others equal.

    largest: whether the largest is best; None: that of an accuracy, else the smallest. level: only
    those that a paired t-test tells from every other of their group at this level, after Holm.
    """
    names = (*table.row_names, *table.column_names)
    if over not in ("row", "column", *names):
        raise unknown(over, "row, column or a coordinate of the table", over, names)
    largest = "accuracy" in table.variable if largest is None else largest
    groups: dict[object, list[tuple[int, int]]] = {}
    for (i, row), (j, column) in itertools.product(enumerate(table.rows), enumerate(table.columns)):
        cell = zip(names, (*row, *column), strict=True)
        key: object = {"row": i, "column": j}.get(over)
        if over in names:
            key = tuple(text for name, text in cell if name != over)
        groups.setdefault(key, []).append((i, j))
    marked = np.zeros(table.values.shape[:2], dtype=bool)
    for places in groups.values():
        trials = np.array([table.values[place] for place in places])
        seen = [i for i, row in enumerate(trials) if np.isfinite(row).any()]
        if len(seen) < 2:
            continue
        means = np.array([np.mean(trials[i][np.isfinite(trials[i])]) for i in seen])
        won = int(means.argmax() if largest else means.argmin())
        others = trials[[i for i in seen if i != seen[won]]]
        if level is None or _told_apart(trials[seen[won]], others, level):
            marked[places[seen[won]]] = True
    return marked


def text(table: Grid) -> str:
    """Aligned with spaces, for a terminal."""
    rows = [_head(table), *_body(table)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def markdown(table: Grid, bold: np.ndarray | None = None) -> str:
    """A table of GitHub's Markdown; `bold` [rows, columns] marks cells."""
    rows = []
    for i, row in enumerate(_body(table)):
        first = len(table.row_names)
        cells = [
            f"**{cell}**" if bold is not None and j >= first and bold[i, j - first] else cell
            for j, cell in enumerate(row)
        ]
        rows.append([cell.replace("|", "\\|") for cell in cells])
    lines = [_head(table), ["---"] * len(_head(table)), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_csv(table: Grid, path: Path) -> None:
    """A line a cell: its coordinates, mean, standard deviation, trials that are there."""
    names = (*table.row_names, *table.column_names)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*names, "mean", "std", "trials"])
            for (i, row), (j, column) in itertools.product(
                enumerate(table.rows), enumerate(table.columns)
            ):
                seen = table.values[i, j][np.isfinite(table.values[i, j])]
                mean = seen.mean() if len(seen) else math.nan
                std = seen.std(ddof=1) if len(seen) > 1 else math.nan
                writer.writerow([*row, *column, mean, std, len(seen)])
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error


def latex(table: Grid, bold: np.ndarray | None = None, label: str = "") -> str:
    """A table with rules of the package booktabs. The cells of a column have equally many decimals,
    so that they are aligned; more than one axis across makes a line of heads each."""
    first, count = max(1, len(table.row_names)), len(table.columns)
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{escaped(table.caption)}.}}",
        *([rf"  \label{{{label}}}"] if label else []),
        rf"  \begin{{tabular}}{{{'l' * first}{'r' * count}}}",
        r"    \toprule",
    ]
    lines += [f"    {line}" for line in _latex_head(table, first)]
    lines.append(r"    \midrule")
    cells = [aligned(table.values[:, j]) for j in range(count)]
    widths = [max((len(std.partition(".")[0]) for _, std in column), default=0) for column in cells]
    before: tuple[str, ...] = ()
    for i, row in enumerate(table.rows):
        if i and len(row) > 1 and row[0] != before[0]:
            lines.append(r"    \addlinespace")
        said = [
            "" if i and row[: k + 1] == before[: k + 1] and k < len(row) - 1 else escaped(one)
            for k, one in enumerate(row)
        ] or [""]
        for j in range(count):
            mark = bold is not None and bool(bold[i, j])
            said.append(_latex_cell(cells[j][i], widths[j], mark))
        lines.append(f"    {' & '.join(said)} \\\\")
        before = row
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines)


def aligned(column: np.ndarray) -> list[Cell]:
    """Cells of values [rows, trials], all to the decimals that give the median standard deviation
    two digits, or the mean four where there is none. Where that takes more than six decimals or the
    means lie further apart than that shows, each has digits of its own."""
    seen = [row[np.isfinite(row)] for row in column]
    stds = [float(row.std(ddof=1)) if len(row) > 1 else 0.0 for row in seen]
    sizes = [abs(float(row.mean())) for row in seen if len(row) and row.mean()]
    stds = [
        0.0 if len(r) and s < 1e-6 * abs(r.mean()) else s for s, r in zip(stds, seen, strict=True)
    ]
    spreads = [std for std in stds if std]
    if spreads:
        places = 1 - math.floor(math.log10(float(np.median(spreads))))
    else:
        places = 3 - math.floor(math.log10(max(sizes))) if sizes else 0
    fixed = places <= 6 and (not sizes or (max(sizes) < 1e6 and min(sizes) > 10.0**-places))
    places = max(places, 0)
    out = []
    for row, std in zip(seen, stds, strict=True):
        if not len(row):
            out.append(("", ""))
        elif fixed:
            out.append((f"{row.mean():.{places}f}", f"{std:.{places}f}" if len(row) > 1 else ""))
        else:
            mean, _, rest = spread(row).partition(" ± ")
            out.append((mean, rest))
    return out


def escaped(words: str) -> str:
    """Text as LaTeX takes it; numbers get a true minus sign."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {one: f"\\{one}" for one in "&%$#_{}"} | {"±": r"$\pm$", "µ": r"\textmu{}"}
    special |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    out = "".join(special.get(one, one) for one in words)
    return re.sub(r"^-(?=\d)", r"$-$", out)


def _told_apart(winner: np.ndarray, others: np.ndarray, level: float) -> bool:
    dims = ("other", "trial")
    p = compared(xr.DataArray(others, dims=dims), xr.DataArray(winner, dims=dims[1:]))["p"]
    return bool((holm(p.values) < level).all())


def _crossed(
    ds: xr.Dataset, dims: Sequence[str], units: bool = True
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """`labels` of every combination of places along the axes, the last fastest."""
    each = [labels(ds, dim, units) for dim in dims]
    names = tuple(name for own, _ in each for name in own)
    texts = itertools.product(*(texts for _, texts in each))
    return names, [tuple(itertools.chain.from_iterable(parts)) for parts in texts]


def _head(table: Grid) -> list[str]:
    names = [name.replace("_", " ") for name in table.row_names]
    if not table.column_names:
        return [*names, table.title]
    bare = [name.replace("_", " ") for name in table.column_names]
    return [*names, *(", ".join(map(_told, bare, column)) for column in table.columns)]


def _told(name: str, words: str) -> str:
    """A number without a unit says nothing alone."""
    return f"{name} {words}" if re.fullmatch(r"-?[\d.e+-]+", words) else words


def _body(table: Grid) -> list[list[str]]:
    return [
        [*row, *(spread(trials) for trials in values)]
        for row, values in zip(table.rows, table.values, strict=True)
    ]


def _latex_head(table: Grid, first: int) -> list[str]:
    """A line for each coordinate across; equal neighbours of all but the last share a cell."""
    names = [escaped(name.replace("_", " ")) for name in table.row_names] or [""]
    if not table.column_names:
        return [f"{' & '.join([*names, escaped(table.title)])} \\\\"]
    count = len(table.columns)
    above = rf"\multicolumn{{{count}}}{{c}}{{{escaped(table.across)}}}"
    lines = [rf"{' & ' * first}{above} \\", rf"\cmidrule(lr){{{first + 1}-{first + count}}}"]
    for level in range(len(table.column_names)):
        last = level == len(table.column_names) - 1
        keys = [column[: level + 1] if not last else column for column in table.columns]
        cells, rules, at = [], [], first + 1
        for key, same in itertools.groupby(range(len(keys)), key=lambda i: (keys[i], i * last)):
            size = len(list(same))
            cells.append(rf"\multicolumn{{{size}}}{{c}}{{{escaped(key[0][level])}}}")
            rules.append(rf"\cmidrule(lr){{{at}-{at + size - 1}}}")
            at += size
        own = names if last else [""] * first
        lines.append(f"{' & '.join([*own, *cells])} \\\\")
        lines += [] if last else [" ".join(rules)]
    return lines


def _latex_cell(cell: Cell, width: int, bold: bool) -> str:
    mean, std = (_exponent(part) for part in cell)
    if not mean:
        return "--"
    pad = r"\phantom{" + "0" * (width - len(cell[1].partition(".")[0])) + "}" if std else ""
    pad = "" if pad == r"\phantom{}" else pad
    said = f"{mean} \\pm {pad}{std}" if std else mean
    return rf"$\mathbf{{{said}}}$" if bold else f"${said}$"


def _exponent(value: str) -> str:
    mantissa, e, power = value.partition("e")
    return rf"{mantissa} \times 10^{{{int(power)}}}" if e else value
