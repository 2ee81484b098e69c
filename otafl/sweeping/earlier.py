"""A result that is there before a run: whether the run begins with what it holds.

It does where the scenario is the same or has grown from it, and everything that the result was
computed by is still the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from otafl.core.errors import DamagedError, UserError
from otafl.core.suggestions import format_count
from otafl.results import models as trained
from otafl.results import origins
from otafl.results.dataset import to_part
from otafl.results.environment import get_device_name, get_versions
from otafl.results.files import open_part
from otafl.scenario import (
    Scenario,
    compute_scenario_hash,
    expand,
    hash_custom_sources,
    list_differences,
    restore_tree,
)
from otafl.scenario.yaml_source import parse
from otafl.sweeping.planning import Row, hash_sources, name_points
from otafl.sweeping.stack_job import hash_inputs
from otafl.sweeping.store import format_changed
from otafl.user_code import sources
from otafl.user_code.sources import list_changed

MAX_KEYS = 4
"""Keys of a scenario that a message lists."""

REPLACE = "give another file with --out, or replace this one with --restart (restart=True)"


@dataclass(frozen=True)
class Earlier:
    """Results with which a run begins.

    part: of the grown sweep. numbers: of a point, before -> now. rows: what it holds. is_whole:
    whether nothing is missing.
    """

    part: xr.Dataset
    numbers: dict[int, int]
    rows: set[Row]
    is_whole: bool


def name_own_file(scenario: Scenario) -> Path:
    """Name the result file of a scenario for which none is given.

    It is replaced if the scenario was changed.
    """
    return Path(scenario.output.folder) / f"{scenario.name}.nc"


def find_growth(stored: Mapping[str, Any], scenario: Scenario) -> dict[int, int] | None:
    """Return how a scenario has grown from the one that a file holds: point before -> now.

    None if they differ in anything except more values on the same axes, in any order, and more
    trials. Nothing that the file names is imported.
    """
    tree = restore_tree(stored)
    sweep, trials = tree.get("sweep", {}), tree.get("trials", 1)
    if list(sweep) != list(scenario.sweep) or not 0 < trials <= scenario.trials:
        return None
    try:
        places = [[scenario.sweep[key].index(v) for v in values] for key, values in sweep.items()]
    except ValueError:
        return None
    before = scenario.model_copy(update={"sweep": sweep, "trials": trials})
    if stored["scenario_hash"] != compute_scenario_hash(before):
        return None
    sizes = [len(values) for values in scenario.sweep.values()]
    grid = np.arange(math.prod(sizes)).reshape(sizes)
    own = grid[np.ix_(*places)].ravel().tolist() if places else [0]
    return dict(enumerate(own))


def read_earlier(out: Path, scenario: Scenario, tell: Callable[[str], None]) -> Earlier | None:
    """Return the results in a file with which a run of the scenario begins.

    None if the file is computed again; the reason is reported unless nothing is lost.

    Raises UserError where the file is of another scenario, of user-defined code before a change, or
    another program's.
    """
    if not out.is_file() or not out.stat().st_size:
        return None
    try:
        with open_part(out) as whole:
            stored = whole.attrs
            numbers = find_growth(stored, scenario)
            part = to_part(whole).load() if numbers and stored["complete"] == 1 else None
    except DamagedError:
        return None
    except (OSError, UserError, LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"{out}: is there already, and no result that can be read; {REPLACE}"
        ) from error
    if numbers is None:
        changed = _find_changes(out, stored, scenario)
        tell(f"{out}: is computed again, since it was made with other {changed}")
    if numbers is None or part is None:
        return None
    other = _find_differences(out, part, numbers, scenario)
    if other:
        tell(f"{out}: is computed again, since it was made with other {', '.join(sorted(other))}")
        return None
    points = expand(scenario)
    names = name_points(points, hash_sources(points))
    index = [numbers[old] for old in part["point_index"].values.tolist()]
    rows = {(names[number], trial) for number in index for trial in part["trial"].values.tolist()}
    made = origins.renumber_points(origins.read(part.attrs), numbers)
    part = part.assign_coords(point_index=("point", np.asarray(index, dtype=np.int64)))
    part = part.assign_attrs({origins.ATTRIBUTE: origins.to_json(made)})
    is_whole = len(rows) == len(points) * scenario.trials
    if is_whole:
        tell(f"{out}: is finished and stays; --restart computes it again")
    else:
        tell(f"{out}: {describe_growth(len(index), part.sizes['trial'], len(points), scenario)}")
    return Earlier(part, numbers, rows, is_whole)


def describe_growth(old_points: int, old_trials: int, points: int, scenario: Scenario) -> str:
    """Return a sentence that says how a sweep has grown."""
    return (
        f"the sweep has grown from {format_count(old_points, 'point')} of "
        f"{format_count(old_trials, 'trial')} to {format_count(points, 'point')} of "
        f"{format_count(scenario.trials, 'trial')}; what is finished stays"
    )


def _find_changes(out: Path, stored: Mapping[str, Any], scenario: Scenario) -> str:
    """Return the keys in which a file's scenario differs from another.

    Raises UserError if the file is not the other's own.
    """
    changed = list_differences(stored, scenario)
    listed = ", ".join(changed[:MAX_KEYS]) or "settings"
    listed += f" and {len(changed) - MAX_KEYS} more" if len(changed) > MAX_KEYS else ""
    name = parse(str(stored["scenario"])).data.get("name")
    if name != scenario.name or not _is_own_file(out, scenario):
        raise UserError(
            f"{out}: holds the result of another scenario, '{name}', which differs in {listed}; "
            f"{REPLACE}"
        )
    return listed


def _is_own_file(out: Path, scenario: Scenario) -> bool:
    """Return whether a file is the one that is replaced when its scenario is changed."""
    return out.absolute() == name_own_file(scenario).absolute()


def _find_differences(
    out: Path, part: xr.Dataset, numbers: Mapping[int, int], scenario: Scenario
) -> set[str]:
    """Return what a result was computed by that is not the same now.

    Raises UserError if that is user-defined code, and the file not the scenario's own.
    """
    made = origins.read(part.attrs)
    sources.record(name for origin in made for name in origin.sources or ())
    points = expand(scenario)
    found, outdated = set[str](), set[str]()
    for origin in made:
        for old in origin.points & numbers.keys():
            number = numbers[old]
            outdated |= set(
                list_changed(origin.sources or {}, hash_custom_sources(points[number].scenario))
            )
            now = hash_inputs(points[number].scenario)
            before = (origin.inputs or {}).items()
            found |= {name for name, known in before if now.get(name, known) != known}
        versions = origin.versions.items()
        found |= {name for name, version in versions if get_versions().get(name) != version}
    if outdated and not _is_own_file(out, scenario):
        raise UserError(
            f"{out}: {format_changed(outdated)} since it was computed; undo the change, {REPLACE}"
        )
    if part.attrs.get("device_name") != get_device_name(scenario.engine.device):
        found.add("processor")
    rows = {(point, trial) for point in numbers for trial in range(part.sizes["trial"])}
    if scenario.output.save_models and _list_model_rows(out) != rows:
        found.add("models")
    return found | outdated


def _list_model_rows(out: Path) -> set[tuple[int, int]] | None:
    """Return the points and trials whose models lie beside a result; None for damaged files."""
    try:
        files: Sequence[Path] = trained.list_model_files(out)
        return {row for path in files for row in trained.read(path)[0].rows}
    except UserError:
        return None
