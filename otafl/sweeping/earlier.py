"""A result that is there before a run: whether it stays, is computed again, or is refused.

It stays where the scenario and everything that it was computed by are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from otafl.core.errors import DamagedError, UserError
from otafl.results import models as trained
from otafl.results import origins
from otafl.results.files import open_part
from otafl.results.origins import get_device_name, get_versions
from otafl.scenario import (
    Scenario,
    compute_scenario_hash,
    expand,
    hash_custom_sources,
    list_differences,
    restore_tree,
)
from otafl.sweeping.stack_job import hash_inputs
from otafl.sweeping.store import format_changed
from otafl.user_code.sources import list_changed

MAX_KEYS = 4
"""Keys of a scenario that a message lists."""

REPLACE = "give another file with --out, or delete this one"


def name_own_file(scenario: Scenario) -> Path:
    """Name the result file of a scenario for which none is given.

    It is replaced if the scenario was changed.
    """
    return Path(scenario.output.folder) / f"{scenario.name}.nc"


def is_finished(out: Path, scenario: Scenario, tell: Callable[[str], None]) -> bool:
    """Return whether a file holds the result that a run of the scenario would compute now.

    If not, it is computed again; the reason is reported unless nothing is lost.

    Raises UserError where the file is of another scenario, of user-defined code before a change, or
    another program's.
    """
    if not out.is_file() or not out.stat().st_size:
        return False
    try:
        with open_part(out) as whole:
            stored = whole.attrs
    except DamagedError:
        return False
    except (OSError, UserError) as error:
        raise UserError(
            f"{out}: is there already, and no result that can be read; {REPLACE}"
        ) from error
    if stored["scenario_hash"] == compute_scenario_hash(scenario):
        # what a result was computed by that is not the same now
        made = origins.read(stored)
        points = expand(scenario)
        found, outdated = set[str](), set[str]()
        for origin in made:
            for number in origin.points & set(range(len(points))):
                one = points[number].scenario
                outdated |= set(list_changed(origin.sources or {}, hash_custom_sources(one)))
                now, before = hash_inputs(one), (origin.inputs or {}).items()
                found |= {name for name, known in before if now.get(name, known) != known}
            versions = origin.versions.items()
            found |= {name for name, version in versions if get_versions().get(name) != version}
        if outdated and not _is_own_file(out, scenario):
            raise UserError(
                f"{out}: {format_changed(outdated)} since it was computed; undo the change, "
                f"{REPLACE}"
            )
        if stored["device_name"] != get_device_name(scenario.engine.device):
            found.add("processor")
        rows = {(point.index, trial) for point in points for trial in range(scenario.trials)}
        if scenario.output.save_models and _list_model_rows(out) != rows:
            found.add("models")
        other = ", ".join(sorted(found | outdated))
    else:
        other = _find_changes(out, stored, scenario)
    if other:
        tell(f"{out}: is computed again, since it was made with other {other}")
    elif stored["complete"] == 1:
        tell(f"{out}: is finished and stays; without this file it is computed again")
        return True
    return False


def _find_changes(out: Path, stored: Mapping[str, Any], scenario: Scenario) -> str:
    """Return the keys in which a file's scenario differs from another.

    Raises UserError if the file is not the other's own.
    """
    changed = list_differences(stored, scenario)
    listed = ", ".join(changed[:MAX_KEYS]) or "settings"
    listed += f" and {len(changed) - MAX_KEYS} more" if len(changed) > MAX_KEYS else ""
    name = restore_tree(stored).get("name")
    if name != scenario.name or not _is_own_file(out, scenario):
        raise UserError(
            f"{out}: holds the result of another scenario, '{name}', which differs in {listed}; "
            f"{REPLACE}"
        )
    return listed


def _is_own_file(out: Path, scenario: Scenario) -> bool:
    """Return whether a file is the one that is replaced when its scenario is changed."""
    return out.absolute() == name_own_file(scenario).absolute()


def _list_model_rows(out: Path) -> set[tuple[int, int]] | None:
    """Return the points and trials whose models lie beside a result; None for damaged files."""
    try:
        return {row for path in trained.list_model_files(out) for row in trained.read(path)[0].rows}
    except UserError:
        return None
