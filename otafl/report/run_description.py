"""Account of a run: its scenario, its progress, its software, and the command that repeats it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import xarray as xr

from otafl.analysis import chance
from otafl.analysis.points import list_axes
from otafl.analysis.power_budgets import describe_mixed_budgets
from otafl.core.suggestions import format_count
from otafl.results import header, origins
from otafl.results.coordinates import format_value
from otafl.results.end_values import describe_diverged

MAX_SETTINGS = 100_000
"""Characters of a scenario that a page contains."""
MAX_AXIS_VALUES = 200


class AxisDescription(NamedTuple):
    """A key of the sweep, its distinct values, and whether other keys vary with it."""

    key: str
    meaning: str
    values: list[str]
    joint: bool


def list_facts(ds: xr.Dataset) -> list[str]:
    """Count how much ran: points, trials, rounds, devices."""
    points, rounds = ds["final_round"], ds["round"]
    facts = [format_count(points.size, "point")] if points.ndim else []
    facts += [format_count(ds.sizes["trial"], "trial")]
    facts += [
        f"{format_count(int(rounds[-1]), 'round')} in {format_count(ds.sizes['round'], 'record')}"
    ]
    if "device" in ds.dims:
        least = "up to " if points.ndim and _is_ragged(ds) else ""
        facts.append(f"{least}{format_count(ds.sizes['device'], 'device')}")
    return facts


def list_notices(ds: xr.Dataset) -> list[str]:
    """List what a reader must know before using a number."""
    points, said = ds["final_round"], []
    if not ds.attrs["complete"]:
        done = int(points.notnull().sum())
        said.append(
            f"Unfinished: {done} of {points.size} points are there, and perhaps not all of their "
            "rounds. The command under Settings resumes it."
        )
    if several := origins.format_mixed_versions(ds.attrs):
        said.append(f"{several[0].upper()}{several[1:]}.")
    if lost := describe_diverged(ds):
        said.append(f"{lost}.")
    if mixed := describe_mixed_budgets(ds):
        said.append(f"{mixed[0].upper()}{mixed[1:]}.")
    trials = points.size * ds.sizes["trial"]
    for name, text in (
        ("end_round", "ended early, with no time or no devices left; their last values are kept"),
        ("stop_round", "stopped at their target; their last values are kept"),
    ):
        count = int(ds[name].notnull().sum()) if name in ds else 0
        if count:
            said.append(f"{count} of {format_count(trials, 'trial')} {text}.")
    if guessed := chance.describe(ds):
        said.append(f"{guessed[0].upper()}{guessed[1:]}.")
    return said


def list_swept_axes(ds: xr.Dataset) -> list[AxisDescription]:
    """Return the keys of the sweep in the scenario's order."""
    swept = header.read_scenario(ds.attrs).get("sweep") or {}
    found = []
    for axis, (key, values) in zip(header.read_axes(ds.attrs), swept.items(), strict=True):
        coords = {name: one for name, one in axis["coords"].items() if name != "zip"}
        joint = key == "zip"
        keys = list(dict.fromkeys(k for row in values for k in row)) if joint else [key]
        for own, (name, coordinate) in zip(keys, coords.items(), strict=True):
            units = str(coordinate["units"])
            meaning = str(coordinate["long_name"] or name.replace("_", " "))
            meaning += f" [{units}]" if units not in ("", "1") else ""
            texts = dict.fromkeys(_format_value(value) for value in coordinate["values"])
            shown = list(texts)[:MAX_AXIS_VALUES]
            if len(texts) > len(shown):
                shown.append(f"... and {len(texts) - len(shown)} more")
            found.append(AxisDescription(own, meaning, shown, joint))
    return found


def format_settings(ds: xr.Dataset) -> str:
    """Return the scenario, or its beginning where it is too long for a page."""
    text = str(ds.attrs["scenario"])
    if len(text) <= MAX_SETTINGS:
        return text
    return (
        f"{text[:MAX_SETTINGS]}\n... {len(text) - MAX_SETTINGS} more characters: "
        'otafl.open_results(FILE).attrs["scenario"]'
    )


def format_command(ds: xr.Dataset, source: Path) -> str:
    """Return what runs the same scenario again, or resumes it, once the settings are in a file."""
    name = str(ds.attrs["title"])
    verb = "run" if source.suffix == ".nc" else "sweep"
    path = str(source).encode(errors="replace").decode()  # a name need not be UTF-8
    return shlex.join(["otafl", verb, f"{name}.yaml", "--out", path])


def _is_ragged(ds: xr.Dataset) -> bool:
    """Return whether points differ in the number of their devices."""
    own = [one for one in ds.data_vars.values() if "device" in one.dims and "round" in one.dims]
    if not own:
        return False
    there = own[0].notnull().any([d for d in own[0].dims if d not in (*list_axes(ds), "device")])
    counts = there.sum("device")
    return bool((counts > 0).any() and counts.where(counts > 0).min() < ds.sizes["device"])


def _format_value(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (dict, list)) else format_value(value)
