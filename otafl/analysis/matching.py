"""Matching of the points of two results by their settings.

Points are matched by the settings that either sweep changes, not by position, so a sweep over the
SNR can be compared with a run at one of them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from otafl.analysis.points import flatten_points, list_axes
from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.problems import Path as Keys
from otafl.results import header
from otafl.results.files import open_results
from otafl.scenario import Scenario, axes, load_scenario, restore_tree, to_yaml
from otafl.scenario.keys import CHOICES, get_value, set_value
from otafl.scenario.yaml_source import parse
from otafl.user_code import loading


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
        """Return the number of each point that ran, by its settings at these paths."""
        ran, found = np.isfinite(ds["final_round"].values).ravel(), {}
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
        with loading.disable_imports():  # settings can be compared without it
            stored, data = parse(to_yaml(load_scenario(source))).data, None
    else:
        data = open_results(source)
        stored = restore_tree(data.attrs)
    return read_settings(stored, source), data


def read_settings(stored: dict[str, Any], source: Path | str) -> MatchingSettings:
    """Read the settings of a scenario as it was stored.

    source: what a message names. Raises UserError for a sweep that is not understood.
    """
    tree = dict(stored)
    sweep, problems = axes.read(tree.pop("sweep", {}) or {}, Scenario, tree)
    if problems:
        raise UserError(f"{source}: its sweep is not understood: {problems[0].message}")
    return MatchingSettings(tree, sweep)


def match_points(a: dict[str, int], b: dict[str, int]) -> tuple[list[list[int]], list[str]]:
    """Return the numbers of the points that both have, and in words how many only one has."""
    common = [key for key in a if key in b]
    lacking = [
        f"{len(own) - len(common)} of the {len(own)} points are in {name} alone"
        for name, own in (("A", a), ("B", b))
        if len(own) > len(common)
    ]
    return [[own[key] for key in common] for own in (a, b)], lacking


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
    one, two = (read_settings(restore_tree(ds.attrs), "result") for ds in (first, second))
    paths = list(dict.fromkeys((*one.tracks, *two.tracks)))
    places, _ = match_points(one.number_points(first, paths), two.number_points(second, paths))
    if not places[0]:
        raise UserError(
            "no point has the same swept settings in both results; `otafl diff` lists what differs"
        )
    first, second = (
        flatten_points(ds).isel(point=own) for ds, own in zip((first, second), places, strict=True)
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
    except Exception:  # another version's choice, or the user's own
        return given


def _make_key(values: list[Any]) -> str:
    """Write settings so that equal ones are equal texts, 1 and 1.0 too."""
    return json.dumps(json.loads(json.dumps(values), parse_int=float), sort_keys=True)
