"""Count the rounds done over all stacks, as progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from otafl.sweeping.planning import Stack

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
