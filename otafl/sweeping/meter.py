"""Count the rounds done over all stacks, as progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from otafl.sweeping.planning import Stack

Progress = Callable[[int, int, str], None]
"""Called with (rounds done, rounds in all, note)."""


class Meter:
    """Add up what stacks report, in whatever order they run."""

    def __init__(self, stacks: Sequence[Stack], progress: Progress | None) -> None:
        self._progress = progress
        self._rounds = {stack.number: stack.num_rounds for stack in stacks}
        self._done = dict.fromkeys(self._rounds, 0)
        self._finished: set[int] = set()

    def add_finished(self, number: int) -> None:
        """Record a stack that was finished before the sweep continued."""
        self._done[number] = self._rounds[number]
        self._finished.add(number)

    def finish(self, number: int) -> None:
        """Record that a stack is finished."""
        self.report(number, self._rounds[number], self._rounds[number])
        self._finished.add(number)

    def report(self, number: int, done: int, total: int) -> None:
        """Record that a stack has done `done` of its rounds."""
        if number in self._finished or done <= self._done[number]:
            return  # told already
        self._done[number] = done
        self.report_progress()

    def report_progress(self) -> None:
        """Report the progress of the stacks; an exception of the callback propagates."""
        if self._progress is not None:
            stacks = len(self._rounds)
            current = min(stacks, len(self._finished) + 1)
            note = f"stack {current} of {stacks}"
            self._progress(sum(self._done.values()), sum(self._rounds.values()), note)
