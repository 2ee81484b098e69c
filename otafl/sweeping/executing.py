"""Carry out jobs, here one after the other or by workers, and what failed once more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from otafl.core.errors import UserError, WriteError
from otafl.core.files import write_text
from otafl.scenario import Point
from otafl.sweeping.folder import Folder
from otafl.sweeping.meter import Meter
from otafl.sweeping.stack_job import Job, Outcome, Report, run_job

Execute = Callable[[Sequence[Job], Report], Iterable[Outcome]]
"""Carries out jobs in some order and gives their outcomes as they come."""

AGAIN_S = 1.0
"""Between looks at stacks that another program computes."""


class FailedStacks(Exception):
    """Stacks of a sweep that failed twice, with the reasons; the others are finished."""


def run_here(jobs: Sequence[Job], report: Report) -> Iterator[Outcome]:
    """Carry out jobs in this program, in order.

    Ctrl-C propagates after the partial stack is saved.
    """
    for job in jobs:
        yield run_job(job, report, keep_interrupted=True)


def run_jobs(
    jobs: Sequence[Job],
    execute: Execute,
    meter: Meter,
    done: Callable[[], None],
    tell: Callable[[str], None],
) -> None:
    """Carry out all jobs.

    Those that fail do not harm the others and are tried once more at the end, but not for what the
    user must mend.

    done: called after each that is finished. tell: called with what is worth knowing.

    Raises WriteError at once where the disk does not take a result; the UserError that all jobs
    failed with; FailedStacks. The error of a sweep's only stack is raised as it is.
    """
    failed = _attempt(jobs, execute, meter, done, tell)
    again = [outcome.job for outcome in failed if outcome.kind == "other"]
    if again and len(jobs) > 1:
        for_good = [outcome for outcome in failed if outcome.kind != "other"]
        failed = sorted(
            [*for_good, *_attempt(again, execute, meter, done, tell)],
            key=lambda outcome: outcome.job.stack.number,
        )
    if failed:
        _raise(failed, len(jobs))


def _attempt(
    jobs: Sequence[Job],
    execute: Execute,
    meter: Meter,
    done: Callable[[], None],
    tell: Callable[[str], None],
) -> list[Outcome]:
    """Try jobs, and return the outcomes of those that failed."""
    failed = []
    waiting = list(jobs)
    while waiting:
        busy = []
        for outcome in execute(waiting, meter.report):
            if outcome.state == "busy":
                busy.append(outcome.job)
            elif outcome.state == "done":
                meter.finish(outcome.job.stack.number)
                done()
                for note in outcome.notes:
                    tell(note)
            elif outcome.kind == "write":
                raise WriteError(outcome.message)
            else:
                meter.report_progress()  # the error may be what became of a Ctrl-C
                failed.append(outcome)
                folder = Folder(outcome.job.folder)
                path = folder.get_failure_path(outcome.job.stack.number)
                write_text(path, outcome.trace, replaces=True)
        if len(busy) == len(waiting):
            time.sleep(AGAIN_S)
        waiting = busy
    return failed


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
        trace = Folder(outcome.job.folder).get_failure_path(stack.number)
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
