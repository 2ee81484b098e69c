"""Carry out jobs, here one after the other or by workers, and what failed once more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any

from otafl.core.errors import UserError, WriteError
from otafl.core.files import write_text
from otafl.scenario import Point
from otafl.sweeping.planning import Stack
from otafl.sweeping.stack_job import Job, Outcome, Report, run_job
from otafl.sweeping.store import Store

Execute = Callable[[Sequence[Job], Report, bool], Iterable[Outcome]]
"""Carries out jobs in some order and gives their outcomes as they come.

The last argument: whether to wait for stacks that another program computes.
"""


class FailedStacks(Exception):
    """Stacks of a sweep that failed, with the reasons; the others are finished."""


Progress = Callable[[int, int, str], None]
"""Called with (rounds done, rounds in all, note)."""


class Meter:
    """Add up what stacks report, in whatever order they run.

    Parameters
    ----------
    stacks : all of a sweep.
    finished : names of those that were finished before.
    progress : is called when there is something new.
    """

    def __init__(
        self, stacks: Sequence[Stack], finished: Iterable[str], progress: Progress | None
    ) -> None:
        self._progress = progress
        self._rounds = {stack.name: stack.scenario.training.rounds for stack in stacks}
        self._finished: Set[str] = set(finished)
        self._done = {
            name: rounds if name in self._finished else 0 for name, rounds in self._rounds.items()
        }

    def finish(self, stack: str) -> None:
        """Record that a stack is finished."""
        self.report(stack, self._rounds[stack])
        self._finished |= {stack}

    def report(self, stack: str, done: int) -> None:
        """Record that a stack has done so many of its rounds."""
        if stack in self._finished or done <= self._done[stack]:
            return  # told already
        self._done[stack] = done
        self.report_progress()

    def report_progress(self) -> None:
        """Report the progress of the stacks; an exception of the callback propagates."""
        if self._progress is not None:
            stacks = len(self._rounds)
            current = min(stacks, len(self._finished) + 1)
            note = f"stack {current} of {stacks}"
            self._progress(sum(self._done.values()), sum(self._rounds.values()), note)


def run_here(jobs: Sequence[Job], report: Report, waits: bool) -> Iterator[Outcome]:
    """Carry out jobs in this program, in order."""
    for job in jobs:
        yield run_job(job, report, waits)


def run_jobs(
    jobs: Sequence[Job], execute: Execute, meter: Meter, tell: Callable[[str], None]
) -> list[Job]:
    """Carry out all jobs, and return those that memory was too short for.

    Those that fail do not harm the others. What another program computes is waited for at the end.

    tell: called with what is worth knowing.

    Raises WriteError at once where the disk does not take a result; the UserError that all jobs
    failed with; FailedStacks. The error of a sweep's only stack is raised as it is.
    """
    outcomes = _attempt(jobs, execute, meter, tell)
    busy = [one.job for one in outcomes if one.state == "busy"]
    outcomes += _attempt(busy, execute, meter, tell, waits=True)
    failed = [one for one in outcomes if one.state == "failed"]
    if failed:
        order = [job.stack.name for job in jobs]
        _raise(sorted(failed, key=lambda one: order.index(one.job.stack.name)), len(jobs))
    return [one.job for one in outcomes if one.state == "short"]


def _attempt(
    jobs: Sequence[Job],
    execute: Execute,
    meter: Meter,
    tell: Callable[[str], None],
    waits: bool = False,
) -> list[Outcome]:
    """Try jobs, and return the outcomes of those that are not done."""
    left = []
    for outcome in execute(jobs, meter.report, waits) if jobs else ():
        stack = outcome.job.stack.name
        if outcome.state == "done":
            meter.finish(stack)
            for note in outcome.notes:
                tell(note)
            continue
        if outcome.kind == "write":
            raise WriteError(outcome.message)
        left.append(outcome)
        if outcome.state == "failed":
            meter.report_progress()  # the error may be what became of a Ctrl-C
            path = Store(outcome.job.folder).get_failure_path(stack)
            write_text(path, outcome.trace, replaces=True)
    return left


def _raise(failed: Sequence[Outcome], jobs: int) -> None:
    first = failed[0]
    if jobs == 1 and first.error is not None:
        raise first.error
    texts = {outcome.message for outcome in failed if outcome.kind == "user"}
    if len(failed) == jobs and len(texts) == 1 and all(one.kind == "user" for one in failed):
        raise UserError(first.message) from first.error
    lines = [f"{len(failed)} of {jobs} stacks failed; the others are finished and kept"]
    for outcome in failed:
        stack = outcome.job.stack
        trace = Store(outcome.job.folder).get_failure_path(stack.name)
        said = outcome.message.partition("\n")[0]
        lines.append(f"  {_format_points(stack.points)}: {said} ({trace})")
    lines.append("the same command tries the failed ones again")
    raise FailedStacks("\n".join(lines)) from first.error


def _format_points(points: Sequence[Point]) -> str:
    """Return the values that the points of a stack have in common, or else its first point's."""
    if not points[0].coords:
        return "the scenario"
    common = {
        name: value
        for name, value in points[0].coords.items()
        if all(point.coords[name] == value for point in points)
    }
    shown = (common or points[0].coords).items()
    more = f" and {len(points) - 1} more" if not common else ""
    return ", ".join(f"{name}={_shorten(value)}" for name, value in shown) + more


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
