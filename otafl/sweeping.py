"""Points of a sweep, grouped into stacks, run, and kept: one file a finished stack.

A stack holds points that differ only in fields that change no shape (and in seed), as many as the
memory bound allows. The plan is stored with the sweep and a resumed sweep follows it, since
float32 results differ in the last bits between stack sizes.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from otafl.assembly import bytes_per_trial
from otafl.engine import run_stack
from otafl.errors import UserError
from otafl.results import Record, combine, open_results, read_part, to_dataset, write_part
from otafl.scenario import Point, Scenario, expand, scenario_hash, stack_key, to_yaml
from otafl.variables import VARIABLES

if TYPE_CHECKING:
    import xarray as xr

Progress = Callable[[int, int, str], None]
"""Called with (rounds done, rounds in all, note)."""


@dataclass(frozen=True)
class Stack:
    """Points that run together, and their trial numbers in batches: one, unless memory is short."""

    points: list[Point]
    batches: list[list[int]]

    @property
    def rounds(self) -> int:
        """Of all batches."""
        return self.points[0].scenario.training.rounds * len(self.batches)


def run(
    scenario: Scenario, out: Path | None = None, progress: Progress | None = None
) -> xr.Dataset:
    """Runs every point. With `out` (a .nc file) finished stacks are kept beside it until all are
    done, so the same call resumes after an interruption; else all stays in memory."""
    if out is None:
        stacks = plan(expand(scenario))
        meter = _Meter(stacks, progress)
        parts = [to_dataset(_run(stack, meter), stack.points, scenario) for stack in stacks]
        return combine(parts)
    kept = unfinished(out)
    dataset = sweep(scenario, kept, progress)
    write_part(dataset, out)
    shutil.rmtree(kept)
    return dataset


def unfinished(out: Path) -> Path:
    """The folder beside a result file that keeps its finished stacks until all are done."""
    return out.with_name(f"{out.stem}.unfinished")


def sweep(scenario: Scenario, folder: Path, progress: Progress | None = None) -> xr.Dataset:
    """Runs the points that the folder does not hold yet, a file a stack in `parts/`.

    Raises UserError if the folder holds another scenario's results. On KeyboardInterrupt the
    records of the stack that was running are kept in `interrupted.nc`.
    """
    stacks = _stored_plan(scenario, folder)
    paths = [folder / "parts" / f"{number:05d}.nc" for number in range(len(stacks))]
    meter = _Meter(stacks, progress)
    for stack, path in zip(stacks, paths, strict=True):
        if _finished(path, scenario):
            meter.stack_done()
            continue
        record = _run(stack, meter, folder / "interrupted.nc", scenario)
        write_part(to_dataset(record, stack.points, scenario), path)
    (folder / "interrupted.nc").unlink(missing_ok=True)
    return open_results(folder)


def plan(points: Sequence[Point]) -> list[Stack]:
    """Points grouped by stack key, in order, within `engine.memory_gb`."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(stack_key(point.scenario), []).append(point)
    stacks = []
    for group in groups.values():
        scenario = group[0].scenario
        at_once = max(1, int(scenario.engine.memory_gb * 2**30 // bytes_per_trial(scenario)))
        size = max(1, at_once // scenario.trials)
        numbers = list(range(scenario.trials))
        batches = [numbers[first : first + at_once] for first in range(0, len(numbers), at_once)]
        stacks += [
            Stack(group[first : first + size], batches) for first in range(0, len(group), size)
        ]
    return stacks


def _stored_plan(scenario: Scenario, folder: Path) -> list[Stack]:
    """The folder's plan, or a new one that is then stored in it."""
    points = expand(scenario)
    path = folder / "plan.json"
    identity = {"scenario_hash": scenario_hash(scenario)}
    if path.exists():
        try:
            stored = json.loads(path.read_text())
            if stored["scenario_hash"] != identity["scenario_hash"]:
                raise UserError(
                    f"{folder}: holds the results of another scenario (or of this one before it "
                    "was changed); give another place with --out, or delete this folder"
                )
            return [
                Stack([points[index] for index in stack["points"]], stack["batches"])
                for stack in stored["stacks"]
            ]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise UserError(f"{path}: is damaged; delete the folder {folder}") from error
    stacks = plan(points)
    plain = [
        {"points": [point.index for point in stack.points], "batches": stack.batches}
        for stack in stacks
    ]
    stored = identity | {"stacks": plain}
    try:
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        (folder / "scenario.yaml").write_text(to_yaml(scenario))
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(stored))
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); try --out") from error
    return stacks


def _finished(path: Path, scenario: Scenario) -> bool:
    """Whether a part is there, whole and this scenario's; a damaged one is computed anew."""
    if not path.exists():
        return False
    try:
        with read_part(path, lazy=True) as part:
            attributes = part.attrs
    except UserError:
        return False
    return attributes["scenario_hash"] == scenario_hash(scenario) and attributes["complete"] == 1


class _Meter:
    """Rounds done over all stacks, as progress."""

    def __init__(self, stacks: Sequence[Stack], progress: Progress | None) -> None:
        self._stacks, self._progress = stacks, progress
        self._rounds = [stack.rounds for stack in stacks]
        self._finished = 0
        self._begun = 0

    def stack_done(self) -> None:
        """The next stack is finished, now or before."""
        self._finished += self._rounds[self._begun]
        self._begun += 1

    def stack(self, rounds_before: int) -> Callable[[int, int], None]:
        """The engine's progress for a batch of the current stack."""

        def report(done: int, total: int) -> None:
            if self._progress is not None:
                note = f"stack {self._begun + 1} of {len(self._stacks)}"
                self._progress(self._finished + rounds_before + done, sum(self._rounds), note)

        return report


def _run(
    stack: Stack, meter: _Meter, interrupted: Path | None = None, whole: Scenario | None = None
) -> Record:
    """The record of a stack. An interruption keeps what there is and goes on upwards."""
    records: list[Record] = []
    scenario = stack.points[0].scenario
    for batch in stack.batches:
        rounds_before = len(records) * scenario.training.rounds
        records.append(run_stack(stack.points, meter.stack(rounds_before), batch))
        if not records[-1].complete:
            break
    record = _join_trials(records, scenario.trials)
    if not records[-1].complete:
        if interrupted is not None and whole is not None:
            write_part(to_dataset(record, stack.points, whole), interrupted)
        raise KeyboardInterrupt
    meter.stack_done()
    return record


def _join_trials(records: list[Record], trials: int) -> Record:
    """Records of batches of trials as one; NaN for rounds and trials that are not there."""
    if len(records) == 1 and next(iter(records[0].variables.values())).shape[1] == trials:
        return records[0]
    rounds = sorted({r for record in records for r in record.rounds})
    variables = {
        name: _beside(
            [
                _at_rounds(record.variables[name], record.rounds, rounds)
                if "round" in VARIABLES[name].dims
                else record.variables[name]
                for record in records
            ],
            trials,
        )
        for name in records[0].variables
    }
    links = [record.link for record in records if record.link is not None]
    link = None
    if links:
        link = {name: _beside([one[name] for one in links], trials) for name in links[0]}
    return Record(rounds, variables, all(record.complete for record in records), link)


def _beside(batches: list[np.ndarray], trials: int) -> np.ndarray:
    """Batches [points, trials, ...] along the trials, NaN (0 for whole numbers) for what is not
    there: trials that did not run, rounds after an early end."""
    shape = np.max([batch.shape for batch in batches], 0)
    shape[1] = trials
    fill = math.nan if batches[0].dtype.kind in "fc" else 0
    joined = np.full(shape, fill, dtype=batches[0].dtype)
    first = 0
    for batch in batches:
        place = tuple(slice(size) for size in batch.shape)
        joined[(place[0], slice(first, first + batch.shape[1]), *place[2:])] = batch
        first += batch.shape[1]
    return joined


def _at_rounds(values: np.ndarray, own: list[int], rounds: list[int]) -> np.ndarray:
    out = np.full((*values.shape[:2], len(rounds), *values.shape[3:]), math.nan)
    out[:, :, [rounds.index(r) for r in own]] = values
    return out
