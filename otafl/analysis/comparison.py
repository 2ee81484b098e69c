"""What differs between two results: their settings, and their numbers at the points that both have.

Points are matched by the settings that either sweep changes, not by position, so a sweep over the
SNR can be compared with a run at one of them.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from pydantic import ValidationError

from otafl.analysis.figures import shown
from otafl.analysis.paired import ended
from otafl.analysis.summary import SHOWN
from otafl.analysis.tabulating import by_point
from otafl.core import registry
from otafl.core.errors import UserError
from otafl.results.dataset import open_results
from otafl.scenario import Scenario, axes, load_scenario, to_yaml
from otafl.scenario.keys import CHOICES
from otafl.scenario.yaml_source import parse

IGNORED = "wall_time_s"
"""Differs from run to run; shown, but no difference."""

Pair = tuple[Any, Any]


@dataclass(frozen=True)
class VariableDifference:
    """A variable at the common points: how many values were compared and differ beyond the
    tolerance, the largest absolute and relative difference (over the larger of the two) and where
    the former is. only_one_finite: values that one result has and the other has not."""

    name: str
    compared: int
    differing: int
    only_one_finite: int = 0
    largest: float = 0.0
    largest_relative: float = 0.0
    at: dict[str, str] = field(default_factory=dict)
    values: Pair = (math.nan, math.nan)


@dataclass(frozen=True)
class PairedDifference:
    """B - A of a variable at the end of each trial, at one point: mean and standard deviation over
    the trials that both have."""

    variable: str
    point: str
    difference: float
    std: float
    trials: int


@dataclass(frozen=True)
class Comparison:
    """What differs. settings: dotted key -> its values, None for a key that one lacks. about:
    versions, hash, processor and so on, which are no difference by themselves. lacking: what one of
    them has alone, in words. common_points: how many points were compared; None if only settings
    were. paired: differences of the main variables, `common_numbers` saying whether their random
    numbers are common."""

    names: Pair
    settings: dict[str, Pair]
    about: dict[str, Pair]
    common_points: int | None = None
    lacking: list[str] = field(default_factory=list)
    variables: list[VariableDifference] = field(default_factory=list)
    ignored: list[VariableDifference] = field(default_factory=list)
    paired: list[PairedDifference] = field(default_factory=list)
    common_numbers: bool = False
    tolerance: float = 0.0

    @property
    def differs(self) -> bool:
        """In settings or numbers, or in which numbers there are."""
        numbers = any(one.differing for one in self.variables)
        return bool(self.settings or self.lacking or numbers)

    def as_json(self) -> str:
        """All of it; NaN as null."""
        tree = asdict(self) | {"differs": self.differs}
        return json.dumps(_plain(tree), indent=2, default=str)


def compare(a: Path, b: Path, tolerance: float = 0.0) -> Comparison:
    """Compares two result files or folders of sweeps; with a scenario's YAML, settings alone.

    tolerance: numbers count as equal whose relative difference is at most this. Raises UserError
    for what cannot be read.
    """
    if not 0 <= tolerance < 1:
        raise UserError(f"--tolerance {tolerance:g}: must be at least 0 and below 1, like 1e-6")
    one, two = _Side.read(a), _Side.read(b)
    settings = _settings(one, two)
    names = (str(a), str(b))
    if one.data is None or two.data is None:
        return Comparison(names, settings, {})
    about = {
        key: (_item(one.data.attrs.get(key)), _item(two.data.attrs.get(key)))
        for key in dict.fromkeys((*one.data.attrs, *two.data.attrs))
        if _is_about(key) and one.data.attrs.get(key) != two.data.attrs.get(key)
    }
    matched, lacking = _matched(one, two)
    first, second = (
        by_point(side.data).isel(point=[pair[i] for pair in matched])
        for i, side in enumerate((one, two))
        if side.data is not None
    )
    found: list[VariableDifference] = []
    if matched:
        lacking += _lacking(first, second)
        for name in [str(name) for name in first.data_vars if name in second]:
            if set(first[name].dims) == set(second[name].dims):
                found.append(_difference(first, second, name, tolerance))
            else:
                lacking.append(f"{name} has other dims in A than in B")
    changed = {one.name for one in found if one.differing}
    return Comparison(
        names,
        settings,
        about,
        len(matched),
        lacking,
        [one for one in found if one.name != IGNORED],
        [one for one in found if one.name == IGNORED and one.differing],
        list(_paired(first, second, [name for name in SHOWN if name in changed])),
        one.tree.get("seed") == two.tree.get("seed") and one.tree["data"] == two.tree["data"],
        tolerance,
    )


@dataclass(frozen=True)
class _Side:
    """One of the two. tree: its scenario filled in, without the sweep. sweep: its axes. data: None
    if it is a scenario."""

    tree: dict[str, Any]
    sweep: axes.Sweep
    data: xr.Dataset | None

    @staticmethod
    def read(source: Path) -> _Side:
        if source.suffix in (".yaml", ".yml") and not source.is_dir():
            stored, data = to_yaml(load_scenario(source)), None
        else:
            data = open_results(source)
            stored = str(data.attrs["scenario"])
        tree = _whole(parse(stored).data)
        sweep, problems = axes.read(tree.pop("sweep", {}) or {}, Scenario, tree)
        if problems:
            raise UserError(f"{source}: its sweep is not understood: {problems[0].message}")
        return _Side(tree, sweep, data)

    @property
    def tracks(self) -> dict[tuple[str | int, ...], axes.Track]:
        return {track.path: track for axis in self.sweep for track in axis}

    def points(self) -> Iterator[dict[str, Any]]:
        """The settings of each point, sections filled in."""
        for settings in axes.points(self.sweep):
            tree = axes.applied(self.tree, settings)
            for track, _ in settings:
                if track.chooses:
                    tree = _put(tree, track.path, _filled(track.path, _at(tree, track.path)))
            yield tree


def _whole(tree: dict[str, Any]) -> dict[str, Any]:
    """A stored scenario with the keys that came later; as it is, where this version refuses it."""
    bare = {key: value for key, value in tree.items() if key != "sweep"}
    try:
        filled = parse(to_yaml(Scenario.model_validate(bare))).data
    except ValidationError:
        return tree
    return {**filled, "sweep": tree.get("sweep", {})}


def _settings(one: _Side, two: _Side) -> dict[str, Pair]:
    """The keys whose values differ. A swept key has its list of values; what it replaces is not
    told, and of a section that one of the two sweeps the other has its choice."""
    swept = list(dict.fromkeys((*one.tracks, *two.tracks)))
    flat = [_flat_settings(side, swept) for side in (one, two)]
    keys = dict.fromkeys((*flat[0], *flat[1]))
    pairs = {key: (flat[0].get(key), flat[1].get(key)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _flat_settings(side: _Side, swept: Collection[tuple[str | int, ...]]) -> dict[str, Any]:
    rest, own = side.tree, side.tracks
    out: dict[str, Any] = {}
    for path in swept:
        key, value = ".".join(map(str, path)), _at(side.tree, path)
        if path in own:
            out[key] = "swept: " + ", ".join(shown(axes.label(v)) for v in own[path].values)
        elif value is not None:
            out[key] = axes.label(value) if path in CHOICES else value
        rest = _put(rest, path, None)
    return dict(_flat(rest)) | out


def _matched(one: _Side, two: _Side) -> tuple[list[tuple[int, int]], list[str]]:
    """Positions of the points that both have, and in words how many only one has."""
    paths = list(dict.fromkeys((*one.tracks, *two.tracks)))
    places: list[dict[str, int]] = []
    for side in (one, two):
        keys = [json.dumps([_number(_at(p, path)) for path in paths]) for p in side.points()]
        ran = np.ones(len(keys), dtype=bool)
        if side.data is not None:
            ran = np.isfinite(side.data["final_round"].values).ravel()
        places.append({key: i for i, key in enumerate(keys) if ran[i]})
    common = [(i, places[1][key]) for key, i in places[0].items() if key in places[1]]
    lacking = [
        f"{len(own) - len(common)} of the {len(own)} points are in {name} alone"
        for name, own in zip("AB", places, strict=True)
        if len(own) > len(common)
    ]
    return common, lacking


def _lacking(a: xr.Dataset, b: xr.Dataset) -> list[str]:
    """Variables, trials, rounds, devices that one result has alone."""
    out = []
    for name, own, other in (("A", a, b), ("B", b, a)):
        alone = sorted(str(v) for v in set(own.data_vars) - set(other.data_vars))
        if alone:
            out.append(f"variables in {name} alone: {', '.join(alone)}")
        for dim in own.dims:
            if dim == "point" or dim not in other.dims or dim == "event":
                continue
            more = [v for v in own[dim].values if v not in set(other[dim].values.tolist())]
            if more:
                ends = shown(more[0]) + (f" ... {shown(more[-1])}" if len(more) > 1 else "")
                out.append(f"{dim} in {name} alone: {ends} ({len(more)})")
    return out


def _difference(a: xr.Dataset, b: xr.Dataset, name: str, tolerance: float) -> VariableDifference:
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
    place = np.unravel_index(int(beyond.argmax() if both.any() else differing.argmax()), x.shape)
    if beyond.max(initial=-1.0) < 0:
        place = np.unravel_index(int(differing.argmax()), x.shape)
    at = {str(dim): shown(one[dim].values[i]) for dim, i in zip(one.dims, place, strict=True)}
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


def _paired(a: xr.Dataset, b: xr.Dataset, names: list[str]) -> Iterator[PairedDifference]:
    for name in names:
        bare = (ended(ds, name).drop_vars("point") for ds in (a, b))
        one, two = xr.align(*bare, join="inner", exclude="point")
        for point, row in zip(a["point"].values, two.values - one.values, strict=True):
            row = row[np.isfinite(row)]
            if len(row):
                std = float(row.std(ddof=1)) if len(row) > 1 else math.nan
                yield PairedDifference(name, str(point), float(row.mean()), std, len(row))


def _is_about(key: object) -> bool:
    text = str(key)
    named = ("scenario_hash", "seed", "device_name", "complete", "format")
    return text.endswith("_version") or text in named


def _filled(path: tuple[str | int, ...], section: Any) -> Any:
    """A choice with its defaults; as it is where this version does not know it."""
    given = {"name": section} if isinstance(section, str) else dict(section)
    return json.loads(_filled_text(CHOICES[path].table, json.dumps(given)))


@functools.lru_cache(maxsize=1024)
def _filled_text(table: str, section: str) -> str:
    given = json.loads(section)
    try:
        return str(registry.settings(table, given["name"])(**given).model_dump_json())
    except Exception:  # another version's choice, or the user's own
        return section


def _at(tree: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        if not isinstance(tree, Mapping) or part not in tree:
            return None
        tree = tree[part]
    return tree


def _put(tree: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """A copy with a value at a path; None takes the path away."""
    first, *rest = path
    out = dict(tree)
    if rest and isinstance(out.get(str(first)), Mapping):
        out[str(first)] = _put(out[str(first)], tuple(rest), value)
    elif not rest and value is None:
        out.pop(str(first), None)
    elif not rest:
        out[str(first)] = value
    return out


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _number(value: Any) -> Any:
    """1 and 1.0 are one setting."""
    if isinstance(value, Mapping):
        return {key: _number(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_number(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    value = _item(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
