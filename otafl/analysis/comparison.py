"""Find what differs between two results: in settings, and in numbers at the points that both have.

Points are matched by the settings that either sweep changes, not by position, so a sweep over the
SNR can be compared with a run at one of them.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from otafl.analysis.matching import MatchingSettings, match_points, read_source
from otafl.analysis.points import flatten_points
from otafl.core.errors import UserError
from otafl.core.problems import Path as Keys
from otafl.results import origins
from otafl.results.coordinates import format_value
from otafl.scenario import axes
from otafl.scenario.keys import CHOICES, get_value

ABOUT = re.compile(r"_version$|^(scenario_hash|seed|device_name|complete|format)$")
"""Attributes of a result that tell what it was made with."""
IGNORED = "wall_time_s"
"""Differs from run to run; shown, but no difference."""

Pair = tuple[Any, Any]


@dataclass(frozen=True)
class VariableDifference:
    """Difference of a variable between two results at the common points.

    Parameters
    ----------
    compared, differing : values, and those that differ beyond the tolerance.
    only_one_finite : values that one result has and the other has not.
    largest, largest_relative : difference, absolute and over the larger of the two.
    at, values : where the largest absolute difference is, and the two values there.
    """

    name: str
    compared: int
    differing: int
    only_one_finite: int = 0
    largest: float = 0.0
    largest_relative: float = 0.0
    at: dict[str, str] = field(default_factory=dict)
    values: Pair = (math.nan, math.nan)


@dataclass(frozen=True)
class CodeDifference:
    """Code or data by which points were computed that differs between A and B.

    Parameters
    ----------
    what : user-defined file, otafl's source, the samples, or a file that the scenario names.
    values : hashes in A and B, the commonest pair; None where one does not have it.
    points : common points at which it differs.
    """

    what: str
    values: Pair
    points: int


@dataclass(frozen=True)
class Comparison:
    """Differences between A and B.

    Parameters
    ----------
    settings : dotted key -> its values, None for a key that one lacks.
    about : versions, hash, processor and so on, which are no difference by themselves.
    common_points : how many points were compared; None if only settings were.
    computed_by : code and data that differ, which are no difference by themselves.
    lacking : what one of them has alone, in words.
    ignored : variables that differ from run to run.
    """

    names: Pair
    settings: dict[str, Pair]
    about: dict[str, Pair]
    common_points: int | None = None
    computed_by: list[CodeDifference] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    variables: list[VariableDifference] = field(default_factory=list)
    ignored: list[VariableDifference] = field(default_factory=list)
    tolerance: float = 0.0

    @property
    def differs(self) -> bool:
        """Return whether settings, numbers or the sets of numbers differ."""
        numbers = any(one.differing for one in self.variables)
        return bool(self.settings or self.lacking or numbers)

    def to_json(self) -> str:
        """Write all of it, NaN and infinity as null."""
        tree = asdict(self) | {"differs": self.differs}
        text = json.dumps(tree, default=lambda v: v.item() if isinstance(v, np.generic) else str(v))
        return json.dumps(json.loads(text, parse_constant=lambda _: None), indent=2)


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
    settings = _diff_settings(one, two)
    names = (str(a), str(b))
    if first is None or second is None:
        return Comparison(names, settings, {})
    flat_settings = [
        {k: v for k, v in ds.attrs.items() if ABOUT.search(str(k))} for ds in (first, second)
    ]
    paths = list(dict.fromkeys((*one.tracks, *two.tracks)))
    matched, lacking = match_points(
        one.number_points(first, paths), two.number_points(second, paths)
    )
    code = _diff_code(first, second, matched)
    first, second = (
        flatten_points(ds).isel(point=places)
        for ds, places in zip((first, second), matched, strict=True)
    )
    found: list[VariableDifference] = []
    if first.sizes["point"]:
        lacking += _list_missing(first, second)
        for name in [str(name) for name in first.data_vars if name in second]:
            if set(first[name].dims) == set(second[name].dims):
                found.append(_diff_variable(first, second, name, tolerance))
            else:
                lacking.append(f"{name} has other dims in A than in B")
    return Comparison(
        names,
        settings,
        _diff_values(*flat_settings),
        first.sizes["point"],
        code,
        lacking,
        [one for one in found if one.name != IGNORED],
        [one for one in found if one.name == IGNORED and one.differing],
        tolerance,
    )


def _diff_settings(one: MatchingSettings, two: MatchingSettings) -> dict[str, Pair]:
    """Return the keys whose values differ.

    A swept key has its list of values; what it replaces is not told, and of a section that one of
    the two sweeps the other has its choice.
    """
    swept = list(dict.fromkeys((*one.tracks, *two.tracks)))
    return _diff_values(*(_flatten_settings(side, swept) for side in (one, two)))


def _diff_values(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Pair]:
    pairs = {key: (one.get(key), two.get(key)) for key in dict.fromkeys((*one, *two))}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _flatten_settings(side: MatchingSettings, swept: Collection[Keys]) -> dict[str, Any]:
    replaced = {".".join(map(str, path)): path for path in swept}
    below = tuple(f"{key}." for key in replaced)
    flat = ((key, value) for key, value in _flatten(side.tree) if key not in replaced)
    out = {key: value for key, value in flat if not key.startswith(below)}
    for key, path in replaced.items():
        value = get_value(side.tree, path)
        if path in side.tracks:
            values = (format_value(axes.format_label(value)) for value in side.tracks[path].values)
            out[key] = f"swept: {', '.join(values)}"
        elif value is not None:
            out[key] = axes.format_label(value) if path in CHOICES else value
    return out


def _diff_code(
    a: xr.Dataset, b: xr.Dataset, points: Sequence[Sequence[int]]
) -> list[CodeDifference]:
    """Return what the common points (their numbers in A and in B) were computed by that differs.

    What an older file does not say is no difference.
    """
    known = []
    for ds in (a, b):
        found = origins.read(ds.attrs)
        known.append({number: one for one in found for number in one.points})
    pairs: dict[str, Counter[Pair]] = {}
    for numbers in zip(*points, strict=True):
        one, two = (own.get(number) for own, number in zip(known, numbers, strict=True))
        if one is None or two is None:
            continue
        for what, pair in origins.find_differences(one, two).items():
            pairs.setdefault(what, Counter())[pair] += 1
    return [
        CodeDifference(what, counts.most_common(1)[0][0], counts.total())
        for what, counts in pairs.items()
    ]


def _list_missing(a: xr.Dataset, b: xr.Dataset) -> list[str]:
    """List the variables, trials, rounds and devices that only one result has."""
    out = []
    for name, own, other in (("A", a, b), ("B", b, a)):
        alone = sorted(str(v) for v in set(own.data_vars) - set(other.data_vars))
        if alone:
            out.append(f"variables in {name} alone: {', '.join(alone)}")
        for dim in [d for d in own.dims if d in other.dims and d not in ("point", "event")]:
            more = [v for v in own[dim].values if v not in set(other[dim].values.tolist())]
            if more:
                ends = format_value(more[0]) + (
                    f" ... {format_value(more[-1])}" if len(more) > 1 else ""
                )
                out.append(f"{dim} in {name} alone: {ends} ({len(more)})")
    return out


def _diff_variable(a: xr.Dataset, b: xr.Dataset, name: str, tolerance: float) -> VariableDifference:
    one, two = xr.align(
        *(ds[name].drop_vars("final_round", errors="ignore").load() for ds in (a, b)),
        join="inner",
        exclude="point",
    )
    x, y = (v.transpose(*one.dims).values.astype(float) for v in (one, two))
    both = np.isfinite(x) & np.isfinite(y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(both, np.abs(x - y), 0.0)
        size = np.where(both, np.maximum(np.abs(x), np.abs(y)), 1.0)
        relative = np.divide(apart, size, out=np.zeros_like(apart), where=size > 0)
    differing = ~same & (~both | (relative > tolerance))
    if not differing.any():
        return VariableDifference(name, x.size, 0)
    beyond = np.where(differing & both, apart, -1.0)
    first = (beyond if beyond.max() >= 0 else differing).argmax()
    place = np.unravel_index(int(first), x.shape)
    at = {
        str(dim): format_value(one[dim].values[i]) for dim, i in zip(one.dims, place, strict=True)
    }
    at = {"point": at.pop("point")} | at
    return VariableDifference(
        name,
        x.size,
        int(differing.sum()),
        int((differing & ~both).sum()),
        float(max(beyond.max(), 0.0)),
        float(np.where(differing, relative, 0.0).max()),
        at,
        (float(x[place]), float(y[place])),
    )


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
