"""A sweep whose result is one file.

While it runs, what is finished lies in a folder beside the file, as that of any sweep. A file that
is there already is taken up again where this scenario is the same or has grown from it, and
everything that it was computed by is still the same.
"""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otafl.core.errors import DamagedError, UserError, wrap_write_errors
from otafl.core.files import remove_own
from otafl.results import models as trained
from otafl.results import origins
from otafl.results.dataset import to_part
from otafl.results.environment import get_device_name
from otafl.results.files import PACKS, list_finished_files, open_part, open_results, write_part
from otafl.results.origins import Origin
from otafl.scenario import Scenario, expand, list_differences
from otafl.scenario.yaml_source import parse
from otafl.sweeping.folder import Folder, list_outdated
from otafl.sweeping.growing import NOT_OTAFLS, Growth, Source, find_growth
from otafl.sweeping.plan_file import hash_sources_per_stack
from otafl.sweeping.planning import Stack, plan
from otafl.sweeping.resuming import find_differences, format_changed, hash_inputs
from otafl.user_code import sources
from otafl.user_code.sources import Sources

if TYPE_CHECKING:
    import xarray as xr


MAX_KEYS = 4
"""Keys of a scenario that a message lists."""

REPLACE = "give another file with --out, or replace this one with --restart (restart=True)"


def name_own_file(scenario: Scenario) -> Path:
    """Name the result file of a scenario for which none is given.

    It is replaced if the scenario was changed.
    """
    return Path(scenario.output.folder) / f"{scenario.name}.nc"


def get_unfinished_folder(out: Path) -> Path:
    """Name the folder beside a result file that keeps its finished stacks until all are done."""
    return out.with_name(f"{out.stem}.unfinished")


def read_file(
    out: Path, home: Folder, scenario: Scenario, workers: int, tell: Callable[[str], None]
) -> tuple[Growth, Source] | None:
    """Return the results of the scenario in a file, with which its folder begins.

    None if the file is computed again; the reason is reported unless nothing is lost.

    Raises UserError where the file is of another scenario, of user-defined code before a change, or
    another program's.
    """
    if not out.is_file() or not out.stat().st_size:
        return None
    try:
        with open_part(out) as whole:
            stored = whole.attrs
            growth = find_growth(stored, scenario)
            part = to_part(whole).load() if growth and stored["complete"] == 1 else None
    except DamagedError:
        return None
    except (OSError, *NOT_OTAFLS) as error:
        raise UserError(
            f"{out}: is there already, and no result that can be read; {REPLACE}"
        ) from error
    if growth is None:
        changed = _find_changes(out, stored, scenario)
        tell(f"{out}: is computed again, since it was made with other {changed}")
    if growth is None or part is None:
        return None
    stacks = plan(expand(growth.before), workers)
    pairs = ((origin, own) for _, own, origin in _iterate_origins(part, stacks))
    outdated = {file for pair in pairs for file in list_outdated(*pair)}
    if outdated and not _is_own_file(out, scenario):
        raise UserError(
            f"{out}: {format_changed(outdated)} since it was computed; undo the change, {REPLACE}"
        )
    models = list(trained.list_model_files(out)) if scenario.output.save_models else []
    other = _find_differences(part, stacks)
    if part.attrs.get("device_name") != get_device_name(scenario.engine.device):
        other.add("processor")
    if scenario.output.save_models and not _has_models(models, stacks, growth.before.trials):
        other.add("models")
    if other:
        tell(f"{out}: is computed again, since it was made with other {', '.join(sorted(other))}")
        return None
    if not growth.describe():
        tell(f"{out}: is finished and stays; --restart computes it again")
    place = home.get_part_path(0) if len(stacks) == 1 else home.path / PACKS / "1-00000.nc"
    numbers = {stack.number for stack in stacks}
    part = part.assign_attrs(stacks=sorted(numbers))
    places = [home.get_models_path(number).relative_to(home.path) for number in sorted(numbers)]
    named = list(zip(places, models, strict=False))
    return growth, Source(stacks, numbers, [(place.relative_to(home.path), part)], named)


def write_file(home: Folder, out: Path, scenario: Scenario) -> xr.Dataset:
    """Write a finished sweep to one file, remove its folder, and return the result.

    The file may be there already if the sweep has only one stack.
    """
    kept = home.path
    in_parts = bool(list_finished_files(kept))
    dataset = open_results(kept if in_parts else out)
    new, models = trained.get_models_folder(kept), trained.get_models_folder(out)
    moved = scenario.output.save_models and not new.exists()  # before an interruption
    with wrap_write_errors(out):
        if not moved:
            remove_own(models)
        if new.exists():
            new.rename(models)
        if in_parts:
            write_part(dataset, out)
        _remove(kept)
    return dataset


def discard_unused(home: Folder) -> None:
    """Remove the folder of a sweep that never began: it was refused."""
    if not home.plan.exists():
        _remove(home.path)


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


def _find_differences(part: xr.Dataset, stacks: Sequence[Stack]) -> set[str]:
    """Return what a result was computed by that is not the same now."""
    found = set[str]()
    for stack, own, origin in _iterate_origins(part, stacks):
        found |= find_differences(origin, own, hash_inputs(stack.scenario))
    return found


def _iterate_origins(
    part: xr.Dataset, stacks: Sequence[Stack]
) -> Iterator[tuple[Stack, Sources, Origin]]:
    """Yield stacks, their user-defined files and objects now, and the origins of their points."""
    made = origins.read(part.attrs, part["point_index"].values)
    sources.record(name for origin in made for name in origin.sources or ())
    for stack, own in zip(stacks, hash_sources_per_stack(stacks), strict=True):
        points = {point.index for point in stack.points}
        yield from ((stack, own, origin) for origin in made if origin.points & points)


def _has_models(models: Sequence[Path], stacks: Sequence[Stack], trials: int) -> bool:
    """Return whether files hold the models of these stacks, one each."""
    if len(models) != len(stacks):
        return False
    for path, stack in zip(models, stacks, strict=True):
        rows = {(point.index, trial) for point in stack.points for trial in range(trials)}
        try:
            if set(trained.read(path)[0].rows) != rows:
                return False
        except UserError:
            return False
    return True


def _remove(folder: Path) -> None:
    """Remove a folder of finished stacks at once, and those that a kill left half removed.

    With half of them the same call would begin to compute the others. What is not otafl's stays.
    """
    removed = Path(tempfile.mkdtemp(".removed", f".{folder.name}.", folder.parent))
    folder.rename(removed)
    for one in folder.parent.glob(f".{glob.escape(folder.name)}.*.removed"):
        remove_own(one)
    if removed.exists():
        removed.rename(folder)
