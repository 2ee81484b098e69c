"""Find the differences between two results, for `otafl diff`: in settings, and in common numbers.

Points are matched by the settings that either sweep changes, not by position, so a sweep over the
SNR can be compared with a run at one of them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xarray as xr
from pydantic import ValidationError
from rich.console import Console

from otafl.analysis.points import flatten_points, list_axes
from otafl.analysis.summary import format_number, make_table
from otafl.core import registry
from otafl.core.console import make_console
from otafl.core.errors import UserError
from otafl.core.problems import Path as Keys
from otafl.core.suggestions import format_count
from otafl.results import header, origins
from otafl.results.coordinates import format_value
from otafl.results.files import open_results
from otafl.scenario import Scenario, axes, load_scenario, restore_tree, to_yaml
from otafl.scenario.keys import CHOICES, flatten, get_value, set_value
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
    paths = list(dict.fromkeys((*one.tracks, *two.tracks)))
    settings = _diff_values(*(_flatten_settings(side, paths) for side in (one, two)))
    names = (str(a), str(b))
    if first is None or second is None:
        return Comparison(names, settings)
    about = [dict(origins.list_environment(ds.attrs)) for ds in (first, second)]
    (first, second), lacking = match_points(((one, first), (two, second)), paths)
    rows = []
    if first.sizes["point"]:
        lacking += _list_missing(first, second)
        for name in [str(name) for name in first.data_vars if name in second and name != IGNORED]:
            if set(first[name].dims) == set(second[name].dims):
                rows.append(_diff_variable(first, second, name, tolerance))
            else:
                lacking.append(f"{name} has other dims in A than in B")
    numbers, points = pd.DataFrame(rows, columns=NUMBERS), first.sizes["point"]
    return Comparison(names, settings, _diff_values(*about), points, lacking, numbers, tolerance)


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


def _flatten_settings(side: MatchingSettings, swept: Sequence[Any]) -> dict[str, Any]:
    """Return dotted key -> value; a key that either sweeps has its list of values, or its choice.

    Keys below one that is swept are not told.
    """
    replaced = {".".join(map(str, path)): path for path in swept}
    out = {
        key: value
        for key, value in flatten(side.tree)
        if not any(f"{key}.".startswith(f"{above}.") for above in replaced)
    }
    for key, path in replaced.items():
        value = get_value(side.tree, path)
        if path in side.tracks:
            values = (format_value(axes.format_label(value)) for value in side.tracks[path].values)
            out[key] = f"swept: {', '.join(values)}"
        elif value is not None:
            out[key] = axes.format_label(value) if path in CHOICES else value
    return out


def _list_missing(a: xr.Dataset, b: xr.Dataset) -> list[str]:
    """List the variables, trials, rounds and devices that only one result has."""
    out = []
    for name, own, other in (("A", a, b), ("B", b, a)):
        alone = sorted(str(v) for v in set(own.data_vars) - set(other.data_vars))
        if alone:
            out.append(f"variables in {name} alone: {', '.join(alone)}")
        for dim in [d for d in own.dims if d in other.dims and d not in ("point", "event")]:
            more = own[dim].values[~np.isin(own[dim].values, other[dim].values)]
            if len(more):
                ends = " ... ".join(map(format_value, dict.fromkeys((more[0], more[-1]))))
                out.append(f"{dim} in {name} alone: {ends} ({len(more)})")
    return out


def _diff_variable(a: xr.Dataset, b: xr.Dataset, name: str, tolerance: float) -> tuple[Any, ...]:
    """Return the row of a variable: the columns `NUMBERS`."""
    one, two = xr.align(
        *(ds[name].drop_vars("final_round", errors="ignore").load() for ds in (a, b)),
        join="inner",
        exclude="point",
    )
    x, y = (v.transpose(*one.dims).values.astype(float) for v in (one, two))
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        apart = np.where(same, 0.0, np.nan_to_num(np.abs(x - y), nan=np.inf, posinf=np.inf))
        relative = apart / np.where(np.isinf(apart), 1.0, np.fmax(np.abs(x), np.abs(y)))
    differing = ~same & (relative > tolerance)
    if not differing.any():
        return (name, x.size, 0, 0.0, 0.0, np.nan, np.nan, "")
    apart = np.where(differing, apart, 0.0)
    place = np.unravel_index(int(apart.argmax()), x.shape)
    at = {
        str(dim): format_value(one[dim].values[i]) for dim, i in zip(one.dims, place, strict=True)
    }
    where = ", ".join([at.pop("point"), *(f"{dim} {value}" for dim, value in at.items())])
    largest = apart.max(), relative[differing].max()
    return (name, x.size, int(differing.sum()), *largest, x[place], y[place], where)


@dataclass(frozen=True)
class MatchingSettings:
    """Settings of one of the two.

    Parameters
    ----------
    tree : its scenario filled in, without the sweep.
    sweep : its axes.
    """

    tree: dict[str, Any]
    sweep: axes.Sweep

    @property
    def tracks(self) -> dict[Keys, axes.Track]:
        """Return the keys that its sweep varies."""
        return {track.path: track for axis in self.sweep for track in axis}

    def number_points(self, ds: xr.Dataset, paths: Sequence[Keys]) -> dict[str, int]:
        """Return the number of each point that ran, by its settings at these paths.

        Raises UserError where the result has not as many points as its sweep.
        """
        ran, found = np.isfinite(ds["final_round"].values).ravel(), {}
        if (count := axes.count_points(self.sweep)) != ran.size:
            counts = f"it has {format_count(count, 'point')}, and the result {ran.size}"
            raise _make_sweep_error(self.tree, counts)
        for number, point in enumerate(axes.iterate_points(self.sweep)):
            tree = axes.apply_point(self.tree, point)
            for track, _ in point:
                if track.chooses_component:
                    section = json.dumps(get_value(tree, track.path))
                    tree = set_value(tree, track.path, _fill_choice(track.path, section))
            if ran[number]:
                found[_make_key([get_value(tree, path) for path in paths])] = number
        return found


def read_source(source: Path) -> tuple[MatchingSettings, xr.Dataset | None]:
    """Open a result, or load a scenario, and return its settings with it.

    A scenario has no result. Raises UserError.
    """
    if source.suffix in (".yaml", ".yml") and not source.is_dir():
        stored, data = parse(to_yaml(load_scenario(source))).data, None
    else:
        data = open_results(source)
        stored = restore_tree(data.attrs)
    return read_settings(stored), data


def read_settings(stored: dict[str, Any]) -> MatchingSettings:
    """Read the settings of a scenario as it was stored. Raises UserError for a faulty sweep."""
    tree = dict(stored)
    sweep, problems = axes.read(tree.pop("sweep", {}) or {}, Scenario, tree)
    if problems:
        raise _make_sweep_error(tree, problems[0].message)
    return MatchingSettings(tree, sweep)


def _make_sweep_error(tree: Mapping[str, Any], reason: str) -> UserError:
    return UserError(f"result of '{tree.get('name')}': its sweep is not understood: {reason}")


def match_points(
    sides: Sequence[tuple[MatchingSettings, xr.Dataset]], paths: Sequence[Keys]
) -> tuple[list[xr.Dataset], list[str]]:
    """Return two results at the points that both have, and in words how many only one has.

    The points have one dim `point`.
    """
    numbers = [settings.number_points(ds, paths) for settings, ds in sides]
    common = [key for key in numbers[0] if key in numbers[1]]
    lacking = [
        f"{len(own) - len(common)} of the {len(own)} points are in {name} alone"
        for name, own in zip("AB", numbers, strict=True)
        if len(own) > len(common)
    ]
    matched = [
        flatten_points(ds).isel(point=[own[key] for key in common])
        for (_, ds), own in zip(sides, numbers, strict=True)
    ]
    return matched, lacking


def is_whole(ds: xr.Dataset) -> bool:
    """Return whether a result has all points of its scenario, and none was picked."""
    if "sweep" not in ds.attrs or "scenario" not in ds.attrs:
        return False
    sizes = [(axis["dim"], axis["size"]) for axis in header.read_axes(ds.attrs)]
    return sizes == [(dim, ds.sizes[dim]) for dim in list_axes(ds)]


def select_common_points(first: xr.Dataset, second: xr.Dataset) -> tuple[xr.Dataset, xr.Dataset]:
    """Return two whole results at the points that both have, with one dim `point`.

    Points have the labels that they have in the first.

    Raises
    ------
    UserError : where no point has the same settings in both.
    """
    sides = [(read_settings(restore_tree(ds.attrs)), ds) for ds in (first, second)]
    paths = list(dict.fromkeys(path for settings, _ in sides for path in settings.tracks))
    (first, second), _ = match_points(sides, paths)
    if not first.sizes["point"]:
        raise UserError(
            "no point has the same swept settings in both results; `otafl diff` lists what differs"
        )
    return first, second.assign_coords(point=first["point"])


@functools.lru_cache(maxsize=1024)
def _fill_choice(path: Keys, section: str) -> Any:
    """Return a choice (JSON) with its defaults, or as it is where this version does not know it."""
    given = json.loads(section)
    given = {"name": given} if isinstance(given, str) else given
    try:
        return registry.load_settings_class(CHOICES[path].table, given["name"])(**given).model_dump(
            mode="json"
        )
    except (UserError, ValidationError, ValueError):  # another version's choice, or the user's own
        return given


def _make_key(values: list[Any]) -> str:
    """Write settings so that equal ones are equal texts, 1 and 1.0 too."""
    return json.dumps(json.loads(json.dumps(values), parse_int=float), sort_keys=True)
