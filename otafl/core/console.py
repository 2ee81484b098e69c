"""Output to the terminal, and the display of how far a run or a sweep is."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

PLAIN_EVERY_S = 10.0
BAR_EVERY_S = 0.1


def make_console(stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console that prints texts unchanged, without guessing at colours; if quiet, nothing.

    Rich is imported here because `otafl --help` does not need it.
    """
    from rich.console import Console

    return Console(stderr=stderr, quiet=quiet, highlight=False, markup=False)


def print_pairs(console: Console, pairs: Iterable[tuple[str, str]], title: str = "") -> None:
    """Print names and their explanations in two columns, below a title if there is one."""
    from rich.table import Table

    lines = Table(title=title or None, title_justify="left", box=None, show_header=False)
    lines.add_column(no_wrap=True)
    lines.add_column()
    for name, text in pairs:
        lines.add_row(name, text)
    console.print(lines)
    if title:
        console.print()


class Progress:
    """Display of calls with (rounds done, rounds in total, note), on stderr.

    It is a bar in a terminal, else a line every `PLAIN_EVERY_S` and at the end; nothing if quiet.

    Parameters
    ----------
    quiet : bool
        Whether nothing is displayed.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet or sys.stderr is None
        self.bar: RichProgress | None = None
        self.first: tuple[int, float] | None = None
        self.last_shown_at = time.monotonic()

    def __enter__(self) -> Progress:
        if not self.quiet and sys.stderr.isatty():
            from rich import progress

            self.bar = progress.Progress(
                progress.TextColumn("{task.completed:.0f}/{task.total:.0f} rounds", markup=False),
                progress.BarColumn(bar_width=None),
                progress.TextColumn("{task.fields[rate]}", markup=False),
                progress.TimeRemainingColumn(),
                progress.TextColumn("{task.description}", markup=False),
                console=make_console(stderr=True),
                expand=True,
            )
            self.bar.add_task("", total=1, rate="")
            self.bar.start()
        return self

    def __call__(self, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        if self.first is None:
            # rounds that a resumed sweep finds done say nothing of its speed
            self.first = (done, now)
        elapsed = PLAIN_EVERY_S if self.bar is None else BAR_EVERY_S
        if self.quiet or (done < total and now - self.last_shown_at < elapsed):
            return
        self.last_shown_at = now
        rate = (done - self.first[0]) / max(now - self.first[1], 1e-9)
        speed = ""
        if done > self.first[0]:
            value, unit = (rate, "rounds/s") if rate >= 1 else (1 / rate, "s/round")
            speed = f"{value:.{0 if value >= 10 else 1}f} {unit}"
        if self.bar is not None:
            task = self.bar.task_ids[0]
            self.bar.update(task, completed=done, total=total, rate=speed, description=note)
            return
        left = f"{(total - done) / rate:.0f} s left" if speed and done < total else ""
        line = ", ".join(part for part in (f"{done}/{total} rounds", speed, left, note) if part)
        with contextlib.suppress(OSError):  # a full disk costs the words, not the result
            print(line, file=sys.stderr, flush=True)

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()
