"""Find the differences between two results, for `otafl diff`: in settings, and in common numbers.

Numbers are compared at equal coordinates: axes of a sweep, trial, round, device and so on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xarray as xr
from rich.console import Console

from otafl.analysis.points import list_axes, spell_joint_axis
from otafl.analysis.summary import format_number, make_table
from otafl.core.console import make_console
from otafl.core.errors import UserError
from otafl.core.suggestions import format_count
from otafl.results import origins
from otafl.results.coordinates import format_value
from otafl.results.files import open_results
from otafl.scenario import is_scenario, load_scenario, restore_tree, to_yaml
from otafl.scenario.keys import flatten
from otafl.scenario.yaml_source import parse

IGNORED = "wall_time_s"
"""Differs from run to run, and is not compared."""

Pair = tuple[Any, Any]
"""Value in A and value in B; None where one of them has none."""
NUMBERS = ("variable", "values", "differ", "largest", "relative", "A", "B", "at")


@dataclass(frozen=True)
class Comparison:
    """Differences between A and B.

    Parameters
    ----------
    names : files of A and B.
    settings : dotted key -> its values.
    about : what they were made with: versions, hashes of code and data, processor and so on, which
        are no difference by themselves.
    common_points : how many points were compared; None if only settings were.
    lacking : sets of numbers that one of them has alone, in words.
    numbers : a row for each common variable with the columns `NUMBERS`: how many values were
        compared and how many differ beyond the tolerance; the largest difference, absolute and over
        the larger of the two (infinite where one has no value); the two values there, and where.
    """

    names: Pair
    settings: dict[str, Pair]
    about: dict[str, Pair] = field(default_factory=dict)
    common_points: int | None = None
    lacking: list[str] = field(default_factory=list)
    numbers: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=NUMBERS))
    tolerance: float = 0.0

    @property
    def differs(self) -> bool:
        """Return whether settings, numbers or the sets of numbers differ."""
        return bool(self.settings or self.lacking or self.numbers["differ"].any())


def compare(a: Path, b: Path, tolerance: float = 0.0) -> Comparison:
    """Compare two result files or folders of sweeps; with a scenario's YAML, only settings.

    Parameters
    ----------
    tolerance : numbers count as equal whose relative difference is at most this.

    Raises
    ------
    UserError : if a file cannot be read.
    """
    if not 0 <= tolerance < 1:
        raise UserError(f"--tolerance {tolerance:g}: must be at least 0 and below 1, like 1e-6")
    (one, first), (two, second) = read_source(a), read_source(b)
    names, settings = (str(a), str(b)), _diff_values(dict(flatten(one)), dict(flatten(two)))
    if first is None or second is None:
        return Comparison(names, settings)
    about = _diff_values(*(dict(origins.list_environment(ds.attrs)) for ds in (first, second)))
    axes = [", ".join(list_axes(ds)) or "none" for ds in (first, second)]
    if set(list_axes(first)) != set(list_axes(second)):
        said = f"axes differ ({axes[0]} in A, {axes[1]} in B), so no numbers are compared"
        return Comparison(names, settings, about, 0, [said])
    first, second = spell_joint_axis(first), spell_joint_axis(second)
    points, lacking = _match_points(first, second)
    rows = []
    if points:
        lacking += _list_missing(first, second)
        for name in [str(name) for name in first.data_vars if name in second and name != IGNORED]:
            if set(first[name].dims) == set(second[name].dims):
                rows.append(_diff_variable(first, second, name, tolerance))
            else:
                lacking.append(f"{name} has other dims in A than in B")
    numbers = pd.DataFrame(rows, columns=NUMBERS)
    return Comparison(names, settings, about, points, lacking, numbers, tolerance)


def read_source(source: Path) -> tuple[dict[str, Any], xr.Dataset | None]:
    """Open a result, or load a scenario, and return its settings with it.

    A scenario has no result. Raises UserError.
    """
    if is_scenario(source) and not source.is_dir():
        return dict(parse(to_yaml(load_scenario(source))).data), None
    data = open_results(source)
    return restore_tree(data.attrs), data


def print_comparison(found: Comparison) -> None:
    """Print a comparison in the console's width: as tables where they fit, else as records."""
    console = make_console()
    for side, name in zip("AB", found.names, strict=True):
        console.print(f"{side}: {name}")
    _print_pairs(console, "settings that differ", found.settings)
    if not found.settings:
        console.print("\nno setting differs")
    if found.common_points is None:
        console.print("\na scenario has no numbers; only settings were compared")
        return
    _print_pairs(console, "made with", found.about)
    console.print(f"\n{format_count(found.common_points, 'point')} in common")
    for line in found.lacking:
        console.print(f"  {line}")
    if not found.numbers.empty:
        _print_numbers(console, found.numbers, found.tolerance)
    console.print(f"\n{'A and B differ' if found.differs else 'nothing differs'}")


def _print_pairs(console: Console, title: str, pairs: Mapping[str, Pair]) -> None:
    """Print a row for each key: its name and its values."""
    rows = [(key, *map(_format_setting, pair)) for key, pair in pairs.items()]
    if rows:
        _print_rows(console, title, ("", "A", "B"), rows)


def _print_numbers(console: Console, numbers: pd.DataFrame, tolerance: float) -> None:
    equal = numbers.loc[numbers["differ"] == 0, "variable"]
    if len(equal):
        how = f"equal within {tolerance:g}" if tolerance else "exactly equal"
        console.print(f"\n{how} in {format_count(len(equal), 'variable')}: {', '.join(equal)}")
    changed = numbers[numbers["differ"] > 0]
    if changed.empty:
        return
    shown = pd.DataFrame({"variable": changed["variable"]})
    shown["differ"] = [f"{n} of {of}" for n, of in changed[["differ", "values"]].to_numpy()]
    for name, digits in (("largest", 3), ("relative", 2), ("A", 4), ("B", 4)):
        shown[name] = [format_number(value, digits) for value in changed[name]]
    shown["at"] = changed["at"]
    title = "numbers that differ: the largest absolute and relative difference"
    _print_rows(console, title, list(shown), shown.to_numpy())
    console.print("\notafl compare tests differences at the end, over pairs of trials")


def _print_rows(
    console: Console, title: str, titles: Sequence[str], rows: Iterable[Iterable[object]]
) -> None:
    console.print(f"\n{title}")
    table = make_table()
    for name in titles:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    console.print(table)


def _format_setting(value: Any) -> str:
    if value is None:
        return "-"
    return json.dumps(value, default=str) if isinstance(value, list | dict) else format_value(value)


def _diff_values(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Pair]:
    pairs = {key: (one.get(key), two.get(key)) for key in dict.fromkeys((*one, *two))}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _match_points(a: xr.Dataset, b: xr.Dataset) -> tuple[int, list[str]]:
    """Count the points that ran in both results, and say how many ran in one alone."""
    ran = [ds["final_round"].notnull() for ds in (a, b)]
    own = [int(one.sum()) for one in ran]
    one, two = xr.align(*ran, join="inner")
    common = int((one & two).sum())
    lacking = [
        f"{count - common} of the {count} points are in {name} alone"
        for name, count in zip("AB", own, strict=True)
        if count > common
    ]
    return common, lacking


def _list_missing(a: xr.Dataset, b: xr.Dataset) -> list[str]:
    """List the variables, trials, rounds and devices that only one result has."""
    out = []
    for name, own, other in (("A", a, b), ("B", b, a)):
        alone = sorted(str(v) for v in set(own.data_vars) - set(other.data_vars))
        if alone:
            out.append(f"variables in {name} alone: {', '.join(alone)}")
        skipped = {"event", *list_axes(own)}
        for dim in [d for d in own.dims if d in other.dims and d not in skipped]:
            more = own[dim].values[~np.isin(own[dim].values, other[dim].values)]
            if len(more):
                ends = " ... ".join(map(format_value, dict.fromkeys((more[0], more[-1]))))
                out.append(f"{dim} in {name} alone: {ends} ({len(more)})")
    return out


def _diff_variable(a: xr.Dataset, b: xr.Dataset, name: str, tolerance: float) -> tuple[Any, ...]:
    """Return the row of a variable: the columns `NUMBERS`."""
    one, two = xr.align(*(ds[name].load() for ds in (a, b)), join="inner")
    ran = [v["final_round"].notnull() for v in (one, two)]
    both = ran[0] & ran[1].drop_vars("final_round")
    x, y = (v.where(both).transpose(*one.dims).values.astype(float) for v in (one, two))
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        apart = np.where(same, 0.0, np.nan_to_num(np.abs(x - y), nan=np.inf, posinf=np.inf))
        relative = apart / np.where(np.isinf(apart), 1.0, np.fmax(np.abs(x), np.abs(y)))
    differing = ~same & (relative > tolerance)
    if not differing.any():
        return (name, x.size, 0, 0.0, 0.0, np.nan, np.nan, "")
    apart = np.where(differing, apart, 0.0)
    place = np.unravel_index(int(apart.argmax()), x.shape)
    where = ", ".join(
        f"{dim} {format_value(one[dim].values[i])}" for dim, i in zip(one.dims, place, strict=True)
    )
    largest = apart.max(), relative[differing].max()
    return (name, x.size, int(differing.sum()), *largest, x[place], y[place], where)
