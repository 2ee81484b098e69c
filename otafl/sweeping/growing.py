"""Growth of a sweep that a folder holds: more values on its axes, or more trials.

Points and trials do not depend on what else runs, so what is finished stays. Its files are
rewritten under the numbers and the scenario of the grown sweep. With more trials, a finished stack
becomes the earlier trials of one that still has to run the others (`Folder.get_earlier_path`).

The new files are made in `growing/` beside the old ones. Once they are whole, a list of them is
written, and they take the places of the old ones, the plan last. A program that finds the list
continues with that, so a kill at any moment leaves either sweep.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from otafl.core.errors import UserError
from otafl.core.files import OWN_NAME, list_numbered, remove_own, write_text
from otafl.core.inputs import read_text
from otafl.core.suggestions import format_count
from otafl.results import models as trained
from otafl.results import plain_data
from otafl.results.dataset import renumber_part
from otafl.results.files import list_finished_files, read_part, write_part
from otafl.results.models import TrainedModels
from otafl.results.packing import read_stack_numbers
from otafl.running.checkpoints import change_scenarios
from otafl.scenario import (
    Point,
    Scenario,
    compute_scenario_hash,
    describe_scenario,
    expand,
    is_same,
    restore_tree,
)
from otafl.sweeping import locks
from otafl.sweeping.folder import EARLIER, GROWING, Folder
from otafl.sweeping.plan_file import MAX_BYTES, format_plan, read_plan
from otafl.sweeping.planning import Batch, Stack, plan, plan_more_trials
from otafl.sweeping.resuming import check_sources

if TYPE_CHECKING:
    import xarray as xr

LIST = "files.json"

NAME = re.compile(rf"((parts|packs|models|running|{EARLIER})/)?({OWN_NAME.pattern})")
"""What the files of a sweep are called, from its folder on."""

NOT_OTAFLS = (UserError, LookupError, TypeError, ValueError)
"""What is raised of files that are damaged, or say what no file of otafl does."""


@dataclass(frozen=True)
class Growth:
    """How a sweep has grown.

    Parameters
    ----------
    before : the scenario whose results are there.
    after : the grown one.
    numbers : old number of a point -> its new one.
    """

    before: Scenario
    after: Scenario
    numbers: dict[int, int]

    @property
    def adds_trials(self) -> bool:
        """Return whether trials were added."""
        return self.after.trials > self.before.trials

    def describe(self) -> str:
        """Return a sentence that says how it has grown; empty where it has not."""
        old, points = len(self.numbers), len(expand(self.after))
        if old == points and not self.adds_trials:
            return ""
        return (
            f"the sweep has grown from {format_count(old, 'point')} of "
            f"{format_count(self.before.trials, 'trial')} to {format_count(points, 'point')} of "
            f"{format_count(self.after.trials, 'trial')}; what is finished stays"
        )


@dataclass(frozen=True)
class Source:
    """What is there of a sweep before it grows.

    Parameters
    ----------
    stacks : of the sweep as it was.
    finished : numbers of the stacks that are finished.
    parts, models : what is finished, and its place in the folder of the sweep.
    """

    stacks: Sequence[Stack]
    finished: Set[int]
    parts: Iterable[tuple[Path, xr.Dataset]]
    models: Sequence[tuple[Path, Path]]


Read = Callable[[Folder, Scenario, int, Callable[[str], None]], tuple[Growth, Source] | None]
"""Reads results from elsewhere that a folder without any begins with; takes what `grow` does."""


def grow(
    home: Folder,
    scenario: Scenario,
    workers: int,
    tell: Callable[[str], None],
    read: Read | None = None,
) -> Growth | None:
    """Have the folder hold the scenario, if there are results from which it has grown.

    Parameters
    ----------
    workers : as of `planning.plan`.
    tell : is called with a sentence about what is computed again.
    read : reads what a folder begins with that has no results.

    Returns
    -------
    How it has grown.

    Raises
    ------
    UserError : if it has grown and another program computes there.
    """
    if read is None and not home.plan.is_file():
        return None
    with locks.hold_lock(home.get_lock_path("plan")):
        if (home.path / GROWING / LIST).is_file():
            _take_places(home)
        if home.holds_scenario(scenario) and (read is None or home.describe()):
            return None
        found = None
        if home.describe():
            found = _read_folder(home, scenario)
        elif read is not None:
            found = read(home, scenario, workers, tell)
        if found is None:
            return None
        _prepare(home, *found, workers)
        _take_places(home)
    return found[0]


def find_growth(stored: Mapping[str, Any], scenario: Scenario) -> Growth | None:
    """Return how a scenario has grown from the one that a file holds, see `scenario.about`.

    None if they differ in anything except more values on the same axes, in any order, and more
    trials.

    Nothing that the file names is imported.
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
    if not is_same(stored, describe_scenario(before)):
        return None
    sizes = [len(values) for values in scenario.sweep.values()]
    grid = np.arange(math.prod(sizes)).reshape(sizes)
    own = grid[np.ix_(*places)].ravel().tolist() if places else [0]
    return Growth(before, scenario, dict(enumerate(own)))


def read_earlier_part(home: Folder, stack: Stack, scenario: Scenario) -> xr.Dataset:
    """Return the part with the earlier trials of a stack.

    Raises UserError, which says why, where it cannot be joined with what this program computes.
    """
    path, numbers = home.get_earlier_path(stack.number), [point.index for point in stack.points]
    part = read_part(path)
    held = part["point_index"].values.tolist()
    if not is_same(part.attrs, describe_scenario(scenario)) or part.sizes["trial"] != stack.earlier:
        raise UserError(f"{path}: is of another sweep")
    if sorted(held) != sorted(numbers):
        raise UserError(f"{path}: has other points")
    return part.isel(point=[held.index(number) for number in numbers])


def _read_folder(home: Folder, now: Scenario) -> tuple[Growth, Source] | None:
    """Return what a folder holds; None where it cannot be read, or nothing has grown from it.

    Raises UserError as `check_sources`.
    """
    try:
        growth = find_growth(home.read_stored(), now)
    except (OSError, *NOT_OTAFLS):
        return None
    if growth is None:
        return None
    home.check_idle()
    try:
        stacks = read_plan(growth.before, expand(growth.before), home.path)
    except UserError:  # damaged, as is said where it is read for what it is
        return None
    check_sources(home, growth.before, stacks)
    finished = {n for one in home.find_finished(growth.before).values() for n in one.stacks}
    files = (*trained.list_model_files(home.path), *list_numbered(home.path / EARLIER, ".pt"))
    models = [(path.relative_to(home.path), path) for path in files]
    return growth, Source(stacks, finished, _iterate_finished_parts(home, growth.before), models)


def _iterate_finished_parts(home: Folder, scenario: Scenario) -> Iterator[tuple[Path, xr.Dataset]]:
    """Yield the finished parts; damaged ones and those of another scenario are computed again."""
    wanted = describe_scenario(scenario)
    for path in (*list_finished_files(home.path), *list_numbered(home.path / EARLIER, ".nc")):
        with contextlib.suppress(*NOT_OTAFLS):
            part = read_part(path)
            if part.attrs["complete"] == 1 and is_same(part.attrs, wanted):
                yield path.relative_to(home.path), part


def _prepare(home: Folder, growth: Growth, source: Source, workers: int) -> None:
    """Make the files of the grown sweep in `growing/`, and their list."""
    stage = home.path / GROWING
    remove_own(stage)
    for path, part in _renumber_parts(home, growth, source):
        write_part(part, stage / path)
    for path, models in _renumber_models(growth, source):
        trained.write(models, stage / path, growth.after)
    text, points, old = (
        describe_scenario(growth.after),
        expand(growth.after),
        set(growth.numbers.values()),
    )
    for stack in source.stacks:
        for batch in stack.batches:
            _stage_record(home, growth, home.get_record_path(stack.number, batch))
            before = [stack.points[place] for place in batch.points]
            now = [points[growth.numbers[point.index]] for point in before]
            path = home.get_checkpoint_path(stack.number, batch)
            with contextlib.suppress(Exception):  # not there, or damaged: its rounds run again
                change_scenarios(path, stage / path.relative_to(home.path), before, now)
    grown = [_grow_stack(stack, growth, points, source.finished) for stack in source.stacks]
    new = plan([point for point in points if point.index not in old], workers)
    grown += [replace(stack, number=len(grown) + stack.number) for stack in new]
    write_text(stage / home.scenario_path.name, text["scenario"])
    write_text(stage / home.plan.name, format_plan(text, grown))
    made = [str(path.relative_to(stage)) for path in stage.rglob("*") if path.is_file()]
    # the plan last, or first where there was none: a folder with results always has one
    made.sort(key=lambda name: (name == home.plan.name) == home.plan.exists())
    there = [*list_finished_files(home.path), *list_numbered(home.path / EARLIER, "")]
    there += trained.list_model_files(home.path) if growth.adds_trials else ()
    gone = {str(path.relative_to(home.path)) for path in there} - set(made)
    write_text(stage / LIST, json.dumps({"made": made, "gone": sorted(gone)}))


def _renumber_parts(
    home: Folder, growth: Growth, source: Source
) -> Iterator[tuple[Path, xr.Dataset]]:
    """Yield the parts of the grown sweep, and the path of each.

    Parts with contents that otafl does not write are left out, and computed again.
    """
    for path, part in source.parts:
        with contextlib.suppress(*NOT_OTAFLS):
            stacks = read_stack_numbers(path, part.attrs)
            part = renumber_part(part, growth.numbers, growth.after)
            if path.parent.name == EARLIER or not growth.adds_trials:
                yield path, part
                continue
            for number in stacks:
                own = [growth.numbers[point.index] for point in source.stacks[number].points]
                one = part.isel(point=np.isin(part["point_index"].values, own))
                name = home.get_earlier_path(number).relative_to(home.path)
                yield name, one.assign_attrs(stacks=[number])


def _renumber_models(growth: Growth, source: Source) -> Iterator[tuple[Path, TrainedModels]]:
    """Yield the models of the grown sweep, and the path of each file.

    The stacks of files that cannot be read are computed again.
    """
    for place, path in source.models:
        with contextlib.suppress(*NOT_OTAFLS):
            kept, _ = trained.read(path)
            rows = [(growth.numbers[point], trial) for point, trial in kept.rows]
            finished = place.stem.isdecimal() and int(place.stem) in source.finished
            folder = EARLIER if growth.adds_trials and finished else place.parent
            yield Path(folder, place.name), replace(kept, rows=rows)


def _stage_record(home: Folder, growth: Growth, path: Path) -> None:
    """Keep the record of a finished batch, of a stack that is not finished."""
    with contextlib.suppress(Exception):  # not there, or damaged: it is computed again
        kept = plain_data.load(path)
        if kept["identity"]["scenario"] != compute_scenario_hash(growth.before):
            return
        kept["identity"]["scenario"] = compute_scenario_hash(growth.after)
        if models := kept["record"]["models"]:
            models["rows"] = [(growth.numbers[point], trial) for point, trial in models["rows"]]
        plain_data.save(kept, home.path / GROWING / path.relative_to(home.path))


def _grow_stack(stack: Stack, growth: Growth, points: Sequence[Point], finished: Set[int]) -> Stack:
    """Return a stack with the points and the trials of the grown sweep, which has these points."""
    own = [points[growth.numbers[p.index]] for p in stack.points]
    if not growth.adds_trials:
        return replace(stack, points=own)
    more = plan_more_trials(own, range(growth.before.trials, growth.after.trials))
    if stack.number in finished:
        return replace(stack, points=own, batches=more, earlier=growth.before.trials)
    return replace(stack, points=own, batches=[*stack.batches, *more])


def _read_list(path: Path) -> tuple[list[str], list[str]]:
    """Return the names of files that a list says are made and gone: those of a sweep's folder.

    Raises UserError for any other name, since someone else may have written the list.
    """
    try:
        tree = json.loads(read_text(path, MAX_BYTES))
        made, gone = ([str(name) for name in tree[key]] for key in ("made", "gone"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path}: is damaged ({error}); start the sweep again with --restart"
        ) from error
    for name in (*made, *gone):
        if not NAME.fullmatch(name):
            raise UserError(
                f"{path}: names {name!r}, which is no file of a sweep; look who wrote it, and "
                "start the sweep again with --restart"
            )
    return made, gone


def _take_places(home: Folder) -> None:
    """Replace the old files by those of the grown sweep."""
    stage = home.path / GROWING
    made, gone = _read_list(stage / LIST)
    for name in gone:
        (home.path / name).unlink(missing_ok=True)
    for name in made:
        if (stage / name).exists():
            (home.path / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(stage / name, home.path / name)
    (stage / LIST).unlink()  # first: what it calls old may soon have new files
    remove_own(stage)


def include_earlier_trials(stack: Stack) -> Stack:
    """Return a stack that also runs its earlier trials."""
    size = max(len(batch.trials) for batch in stack.batches)
    every, first = list(range(len(stack.points))), range(0, stack.earlier, size)
    early = [Batch(every, list(range(t, min(t + size, stack.earlier)))) for t in first]
    return replace(stack, batches=[*early, *stack.batches], earlier=0)
