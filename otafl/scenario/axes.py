"""The sweep of a scenario: its axes, their coordinates, and the settings of each point."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from otafl.core.problems import Path, Problem
from otafl.core.registry import TABLES, list_names
from otafl.core.settings import get_description
from otafl.scenario.errors import format_value
from otafl.scenario.key_descriptions import get_unit
from otafl.scenario.keys import (
    CHOICES,
    find_settings_class,
    format_path,
    get_value,
    is_section,
    iterate_settings_classes,
    set_value,
    split,
)
from otafl.scenario.yaml_source import MAX_POINTS

NOT_SWEPT = ("name", "trials", "sweep", "engine", "output", "track")
"""Keys that no axis may have, because they do not change a trial."""

RESERVED = frozenset(
    {"trial", "round", "device", "level", "class", "cause", "event", "present", "point", "zip"}
    | {"participants"}
)
"""Names in every result: an axis of such a name is named after its whole key."""


def are_numbers(values: Sequence[Any]) -> bool:
    """Return whether the values of an axis are numbers, not choices."""
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)


class Coordinate(NamedTuple):
    """A coordinate of the results: its values, units ("" for choices) and name in words."""

    values: tuple[Any, ...]
    units: str
    long_name: str


@dataclass(frozen=True)
class Track:
    """A key of a sweep and its values.

    Parameters
    ----------
    key : str
        The key as written.
    path : Path
        The key's path; a component's `name` stands for its section.
    values : tuple
        Its values.
    place : Path
        Path of the values in the scenario.
    is_joint : bool
        Whether it belongs to `zip`.
    name : str
        Name of its coordinate in the results.
    field : FieldInfo, optional
        Field of the key; None if only a user-defined component knows the key.
    """

    key: str
    path: Path
    values: tuple[Any, ...]
    place: Path
    is_joint: bool = False
    name: str = ""
    field: FieldInfo | None = None

    @property
    def chooses_component(self) -> bool:
        """Whether the values choose the component of a section."""
        return self.path in CHOICES

    @property
    def keeps_keys(self) -> bool:
        """Whether other keys of the section stay, as of `power.name`; `power` replaces it."""
        return self.chooses_component and self.key.endswith(".name")

    @property
    def coordinate(self) -> Coordinate:
        """Its coordinate in the results."""
        if self.chooses_component:
            table = CHOICES[self.path].table
            labels = _shorten([format_label(v) for v in self.values], list_names(table))
            return Coordinate(tuple(labels), "", TABLES[table].noun)
        last = str(self.path[-1])
        units = (get_unit(last) or "1") if are_numbers(self.values) else ""
        long_name = last.replace("_", " ")
        if self.field is not None and (description := get_description(self.field)):
            # the first clause: what follows it are remarks
            long_name = re.split(r"[;,:(]|\. ", description)[0].strip()
            long_name = long_name.removesuffix(f" in {units}")
        return Coordinate(self.values, units, long_name)

    def get_place(self, position: int) -> Path:
        """Return the path of a value in the scenario."""
        if self.is_joint:
            return ("sweep", "zip", position, self.key)
        return (*self.place, position)


Sweep = list[list[Track]]
"""A list of axes, each of one track, or of several that advance together."""


def read(sweep: Any, root: type[BaseModel], tree: Any) -> tuple[Sweep, list[Problem]]:
    """Return the axes of the section `sweep`, and its errors.

    tree: the whole scenario.
    """
    if not isinstance(sweep, Mapping):
        return [], []  # the schema says what is wrong
    axes: Sweep = []
    problems: list[Problem] = []
    for key, values in sweep.items():
        if key == "zip":
            tracks, faults = _read_joint(values)
            axes.append(tracks)
            problems += faults
        elif isinstance(values, list | tuple) and values:
            axes.append([_make_track(key, values, ("sweep", key))])
        else:
            text = f"sweep: {key}: got {format_value(values)}; must be a list of at least one value"
            problems.append(Problem(text, ("sweep", key)))
    taken = Counter(_name(one) for one in itertools.chain(*axes))
    axes = [
        [
            replace(one, name=_name(one, taken), field=_find_field(one, axes, root, tree))
            for one in tracks
        ]
        for tracks in axes
    ]
    for track in itertools.chain(*axes):
        if text := _find_fault(track, axes, tree):
            problems.append(Problem(text, track.place))
    if not problems and (count := math.prod(len(one[0].values) for one in axes)) > MAX_POINTS:
        firsts = [tracks[0] for tracks in axes]
        sizes = " x ".join(
            f"{'zip' if one.is_joint else one.key} {len(one.values):,}" for one in firsts
        )
        text = (
            f"sweep: has {count:,} points ({sizes}); must have at most {MAX_POINTS:,}: list fewer "
            "values, let keys advance together in zip, or make several sweeps of it"
        )
        problems.append(Problem(text, ("sweep",)))
    return axes, problems


def build_axes(sweep: Sweep) -> dict[str, dict[str, Coordinate]]:
    """Return the dims of the results in the scenario's order, each with its coordinates by name."""
    axes = {}
    for tracks in sweep:
        coordinates = {one.name: one.coordinate for one in tracks}
        if tracks[0].is_joint:
            positions = tuple(range(len(tracks[0].values)))
            axes["zip"] = {"zip": Coordinate(positions, "1", "position in zip"), **coordinates}
        else:
            axes[tracks[0].name] = coordinates
    return axes


def list_chosen_sections(sweep: Any) -> dict[Path, bool]:
    """Return the sections whose component a scenario sweeps -> whether their other keys stay."""
    zipped = sweep.get("zip") if isinstance(sweep, Mapping) else ()
    rows = (sweep, *(zipped if isinstance(zipped, list | tuple) else ()))
    keys = (key for row in rows if isinstance(row, Mapping) for key in row)
    tracks = [_make_track(key, (), ()) for key in keys]
    return {track.path: track.keeps_keys for track in tracks if track.chooses_component}


def iterate_points(sweep: Sweep) -> Iterator[list[tuple[Track, int]]]:
    """Yield each point of the sweep, the last axis fastest: every track and its position."""
    for places in itertools.product(*(range(len(tracks[0].values)) for tracks in sweep)):
        yield [
            (track, place) for tracks, place in zip(sweep, places, strict=True) for track in tracks
        ]


def apply_point(tree: Mapping[str, Any], point: Sequence[tuple[Track, int]]) -> dict[str, Any]:
    """Return the scenario with a point's values.

    Choices go first, so that another axis can set a key of the chosen component.
    """
    out = dict(tree)
    for track, place in sorted(
        point, key=lambda one: (not one[0].chooses_component, len(one[0].path))
    ):
        value, section = track.values[place], get_value(out, track.path)
        if track.keeps_keys and isinstance(section, Mapping):
            value = {**section, **CHOICES[track.path].normalise(value)}
        out = set_value(out, track.path, value)
    return out


def format_point(point: Sequence[tuple[Track, int]]) -> str:
    """Return `power=tci, channel.snr_db=10`."""
    return ", ".join(f"{track.key}={_format_value(track.values[place])}" for track, place in point)


def format_label(value: Any) -> Any:
    """Return a choice as a coordinate: its name, with its settings in parentheses."""
    if not isinstance(value, Mapping):
        return value
    if "name" not in value:
        return json.dumps(value)
    settings = ", ".join(f"{key}={format_label(v)}" for key, v in value.items() if key != "name")
    return f"{value['name']}({settings})" if settings else value["name"]


def _shorten(labels: Sequence[Any], known: Collection[str]) -> list[Any]:
    """Leave out the modules of own parts, "module:Name", whose names occur once.

    known: names of built-in components, which no own part has.
    """
    short = {one: re.sub(r"^[\w./]+:", "", one) for one in labels if isinstance(one, str)}
    counts = Counter([*short.values(), *known])
    return [short[one] if one in short and counts[short[one]] == 1 else one for one in labels]


def _format_value(value: Any) -> str:
    return str(format_label(value)) if isinstance(value, str | Mapping) else format_value(value)


def _make_track(key: str, values: Sequence[Any], place: Path, joint: bool = False) -> Track:
    path = split(key)
    if path[-1] == "name" and path[:-1] in CHOICES:
        path = path[:-1]
    return Track(key, path, tuple(values), place, joint)


def _read_joint(rows: Any) -> tuple[list[Track], list[Problem]]:
    place = ("sweep", "zip")
    if (
        not isinstance(rows, list | tuple)
        or not rows
        or not all(isinstance(row, Mapping) and row for row in rows)
    ):
        text = "sweep: zip: must be a list of mappings, each with a value for the same keys"
        return [], [Problem(text, place)]
    keys = list(rows[0])
    for index, row in enumerate(rows):
        if set(row) != set(keys):
            text = (
                f"sweep: zip[{index}]: has the keys {', '.join(row)}, but zip[0] has "
                f"{', '.join(keys)}; every entry must set the same keys"
            )
            return [], [Problem(text, (*place, index))]
    return [
        _make_track(key, [row[key] for row in rows], (*place, 0, key), True) for key in keys
    ], []


def _find_field(track: Track, sweep: Sweep, root: type[BaseModel], tree: Any) -> FieldInfo | None:
    """Return the field of a key, if a component that is given or swept has it, else None."""
    above, last = track.path[:-1], str(track.path[-1])
    trees = [tree]
    for other in itertools.chain(*sweep):
        if other.chooses_component and above[: len(other.path)] == other.path:
            with contextlib.suppress(KeyError):  # the schema says what is wrong
                trees += [set_value(tree, other.path, value) for value in other.values]
    kinds = (find_settings_class(root, above, one) for one in trees)
    fields = (kind.model_fields.get(last) for kind in kinds if kind is not None)
    return next((one for one in fields if one is not None), None)


def _find_fault(track: Track, sweep: Sweep, tree: Any) -> str:
    """Describe the error of a track, or return an empty text."""
    key = track.key
    if track.path[0] in NOT_SWEPT:
        return f"sweep: '{key}' cannot be swept: it does not change what a trial computes"
    if track.field is not None and not track.chooses_component and is_section(track.field):
        first = next(iter(next(iterate_settings_classes(track.field)).model_fields))
        return f"sweep: '{key}' is a section; sweep one of its keys, like {key}.{first}"
    try:
        set_value(tree, track.path, None)
    except KeyError as error:
        return f"sweep: '{key}': {format_path(error.args[0])} has no keys of its own"
    same = next(one for one in itertools.chain(*sweep) if one.path == track.path)
    if same is not track:
        return f"sweep: '{same.key}' and '{key}' set the same key; keep one"
    if track.chooses_component:
        names = [v.get("name") if isinstance(v, Mapping) else v for v in track.values]
        bad = [v for v, name in zip(track.values, names, strict=True) if not isinstance(name, str)]
        if bad:
            return (
                f"sweep: {key}: got {format_value(bad[0])}; must be names, or mappings with a name "
                "and settings"
            )
    labels = [format_label(value) for value in track.values]
    plain = [one if isinstance(one, Hashable) else repr(one) for one in labels]
    counts = Counter(plain)
    twice = [label for label, one in zip(labels, plain, strict=True) if counts[one] > 1]
    if twice and not track.is_joint:
        return f"sweep: {key}: {format_value(twice[0])} is listed twice; keep one"
    # describe the given keys of a section that no value of a track has, or return no text
    section = get_value(tree, track.path)
    if not track.chooses_component or track.keeps_keys or not isinstance(section, Mapping):
        return ""
    others = (one for one in itertools.chain(*sweep) if not one.keeps_keys)
    swept = {one.path[: len(track.path) + 1] for one in others}
    kept = set().union(*(CHOICES[track.path].normalise(value) for value in track.values))
    paths = [(*track.path, key) for key in section if key not in kept]
    lost = " and ".join(format_path(path) for path in paths if path not in swept)
    return lost and (
        f"sweep: {track.key}: would drop {lost}; sweep {format_path(track.path)}.name, which keeps "
        "it, or write it into the values"
    )


def _name(track: Track, taken: Mapping[str, int] | None = None) -> str:
    """Return the name of a coordinate; by its whole key if the name is taken."""
    name = "device_count" if track.path == ("devices", "count") else str(track.path[-1])
    is_free = taken is None or (taken[name] == 1 and name not in RESERVED)
    return name if is_free else "_".join(map(str, track.path))
