"""Define `otafl table` and `otafl compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from otafl.analysis.rows import TableFormat
from otafl.cli.app import (
    LabelOption,
    ResultFile,
    Slices,
    parse_labels,
    parse_slices,
    split_names,
)
from otafl.core.errors import UserError

if TYPE_CHECKING:
    import xarray as xr

    from otafl.analysis.tables import TableGrid

FormatOption = Annotated[
    TableFormat | None, typer.Option("--format", help="Else that of the file, or text.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="A .tex, .md, .csv or .txt file."),
]


def table(
    result: ResultFile,
    variables: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="E.g. test_accuracy,airtime_s; else the main metric."),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="LIST", help="Axes across; else the first of numbers.")
    ] = None,
    sel: Slices = None,
    best: Annotated[
        str | None,
        typer.Option(metavar="WHERE", help="Bold: the best of each row, column, or along an axis."),
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(metavar="P", help="Bold only if significant: paired t-tests below P."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="[VARIABLE=]VALUE", help="Cost of reaching this value."),
    ] = None,
    tune: Annotated[
        str | None, typer.Option(metavar="AXIS", help="Keep its best value, by validation data.")
    ] = None,
    label: LabelOption = None,
    format_: FormatOption = None,
    out: Out = None,
) -> None:
    """Print a table for a paper: LaTeX, CSV or Markdown.

    Cells are mean ± standard deviation over n trials, at the end of each.
    """
    picked, names, texts = parse_slices(sel), split_names(variables), parse_labels(label)
    if level is not None and not 0 < level < 1:
        raise UserError(f"--level {level:g}: must be above 0 and below 1, like 0.05")
    from otafl.analysis.points import select_slices
    from otafl.analysis.rows import choose_format
    from otafl.analysis.tables import build_text_table, find_best
    from otafl.results.files import open_results

    shape = choose_format(format_, out)
    ds = select_slices(open_results(result), picked)
    across = None if columns is None else split_names(columns)
    grid = _build_grid(ds, names, across, (target, tune), shape != TableFormat.csv, texts)
    bold = find_best(grid, best, level) if best else None
    _write(build_text_table(grid, bold).format(shape), out)
    if shape is TableFormat.csv or out is not None:
        typer.echo(grid.caption, err=True)
    _print_notes(ds, [name for name, _ in grid.variables])


def compare(
    result: ResultFile,
    other: Annotated[
        Path | None,
        typer.Argument(metavar="[OTHER]", help="Result whose differences from RESULT are tested."),
    ] = None,
    axis: Annotated[
        str | None, typer.Option(help="Whose values are compared; else the only axis.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Value that others are compared with; else the first.")
    ] = None,
    variable: Annotated[str | None, typer.Option(help="Else the main metric.")] = None,
    sel: Slices = None,
    label: LabelOption = None,
    format_: FormatOption = None,
    out: Out = None,
) -> None:
    """Test differences over pairs of trials.

    They are between the values of an axis, at every point of the others, or between two results.
    Trials share data split, fading and noise.
    """
    picked, texts = parse_slices(sel), parse_labels(label)
    if other is not None and (axis or baseline is not None):
        flag = f"--axis {axis}" if axis else f"--baseline {baseline}"
        raise UserError(f"{flag}: two results are compared with each other; give one of the two")
    from otafl.analysis import paired
    from otafl.analysis.points import find_main_variable, select_slices, write_labels
    from otafl.analysis.rows import choose_format
    from otafl.results.coordinates import get_long_name
    from otafl.results.end_values import describe_diverged
    from otafl.results.files import open_results

    shape = choose_format(format_, out)
    paths = [path for path in (result, other) if path is not None]
    sets = [select_slices(open_results(path), picked) for path in paths]
    variable = variable or find_main_variable(sets[0])
    if other is None:
        tests = paired.compare_pairs(sets[0], variable, axis, baseline)
    else:
        tests = paired.compare_results(sets[0], sets[1], variable)
    said = [str(tests.attrs[key]) for key in ("dim", "baseline") if key in tests.attrs]
    tests = write_labels(tests, texts, (variable, *said))
    if other is None:
        dim, value = tests.attrs["dim"], str(tests.attrs["baseline"])
        base = f"{texts.get(dim, dim.replace('_', ' '))} {texts.get(value, value)}"
    else:
        base = f"{result} to {other}"
    title = texts.get(variable, get_long_name(sets[0], variable))
    _write(paired.build_pair_table(tests, title, base).format(shape), out)
    for note in paired.list_pair_notes(tests, [describe_diverged(ds) for ds in sets]):
        typer.echo(note, err=True)
    for ds in sets:
        _print_notes(ds, [variable])


def _build_grid(
    ds: xr.Dataset,
    names: list[str],
    columns: list[str] | None,
    ways: tuple[str | None, str | None],
    units: bool,
    labels: dict[str, str] | None = None,
) -> TableGrid:
    """Lay out what the options ask for.

    Parameters
    ----------
    names : of variables; none for the default.
    columns : axes across (None: the first of numbers).
    ways : `--target` and `--tune`.
    labels : `--label`.
    """
    from otafl.analysis.overhead import select_soonest, tabulate_costs
    from otafl.analysis.points import find_main_variable, is_numeric, list_axes, write_labels
    from otafl.analysis.tables import build_grid
    from otafl.analysis.tuning import select_tuned
    from otafl.results.end_values import describe_diverged

    target, tune = ways
    goal = _parse_target(target, ds) if target else None
    if tune:
        ds = select_soonest(ds, tune, goal[1]) if goal else select_tuned(ds, tune)
    lost, moment = describe_diverged(ds), "at the end"
    if goal:
        ds, moment = tabulate_costs(ds, *goal), f"when {goal[0]} reached {goal[1]:g}"
        names = names or [name for name in COSTS if name in ds]
    names = names or [find_main_variable(ds)]
    if tune and tune in ds.coords and "trial" in ds.dims:
        chosen = ds[tune].drop_vars("final_round", errors="ignore")
        ds = ds.drop_vars(tune).assign({tune: chosen.expand_dims(trial=ds["trial"])})
        names = [*names, tune]
    ds = write_labels(ds, labels or {})
    if columns is None:
        free = [dim for dim in list_axes(ds) if dim != "zip"]
        columns = [dim for dim in free if is_numeric(ds[dim])][:1] if len(names) == 1 else []
    return replace(build_grid(ds, names, columns, units=units), moment=moment, diverged=lost)


COSTS = (
    *("reached", "best", "rounds", "sim_time_s", "airtime_s", "uplink_symbols"),
    *("energy_j", "tx_energy_j"),
)
"""Columns of `--target`, as far as the result has them."""


def _parse_target(text: str, ds: xr.Dataset) -> tuple[str, float]:
    from otafl.analysis.points import find_main_variable

    name, _, value = text.rpartition("=")
    try:
        return name or find_main_variable(ds), float(value)
    except ValueError as error:
        raise UserError(
            f"--target {text}: expected a number or VARIABLE=NUMBER, like test_accuracy=0.8"
        ) from error


def _write(text: str, out: Path | None) -> None:
    """Print a text, or write it to a file and print the file's name."""
    if out is None:
        typer.echo(text)
        return
    from otafl.core.files import write_text

    write_text(out, f"{text}\n")
    typer.echo(str(out))


def _print_notes(ds: xr.Dataset, names: Sequence[str]) -> None:
    """Print what a reader must know of a result before believing a number."""
    from otafl.analysis import cautions
    from otafl.analysis.cautions import describe_mixed_budgets

    if not ds.attrs["complete"]:
        typer.echo("the sweep is unfinished: - marks what has not been run", err=True)
    if mixed := describe_mixed_budgets(ds):
        typer.echo(mixed, err=True)
    if any(name.endswith("accuracy") for name in names) and (said := cautions.describe_chance(ds)):
        typer.echo(said, err=True)
