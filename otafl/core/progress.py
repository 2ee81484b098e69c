"""Display of how far a run or a sweep is, for the command line and for `progress=True`."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

PLAIN_EVERY_S = 10.0
BAR_EVERY_S = 0.1


class Progress:
    """Display of calls with (rounds done, rounds in total, note).

    It is a bar in a terminal and in a notebook, else a line every `PLAIN_EVERY_S` and at the end;
    nothing if quiet. All output is on stderr, except that of a notebook.

    Parameters
    ----------
    quiet : bool
        Whether nothing is displayed.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet or sys.stderr is None
        self.bar: RichProgress | None = None
        self.cell: Any = None
        self.first: tuple[int, float] | None = None
        self.last_shown_at = time.monotonic()

    def __enter__(self) -> Progress:
        if self.quiet:
            return self
        if _is_notebook():
            from IPython.display import display

            self.bar = _make_bar()
            # rich's own display in notebooks needs ipywidgets, that of IPython nothing
            self.cell = display(self.bar, display_id=True)
        elif sys.stderr.isatty():
            self.bar = _make_bar()
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
        speed = _format_speed(rate) if done > self.first[0] else ""
        if self.bar is not None:
            task = self.bar.task_ids[0]
            self.bar.update(task, completed=done, total=total, rate=speed, description=note)
            if self.cell is not None:
                self.cell.update(self.bar)
            return
        left = f"{(total - done) / rate:.0f} s left" if speed and done < total else ""
        line = ", ".join(part for part in (f"{done}/{total} rounds", speed, left, note) if part)
        with contextlib.suppress(OSError):  # a full disk costs the words, not the result
            print(line, file=sys.stderr, flush=True)

    def __exit__(self, *error: object) -> None:
        if self.bar is not None and self.cell is None:
            self.bar.stop()


def _is_notebook() -> bool:
    """Return whether the program is a notebook's kernel."""
    if "IPython" not in sys.modules:
        return False
    from rich.console import Console

    return Console().is_jupyter


def _make_bar() -> RichProgress:
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn("{task.completed:.0f}/{task.total:.0f} rounds", markup=False),
        progress.BarColumn(bar_width=None),
        progress.TextColumn("{task.fields[rate]}", markup=False),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        expand=True,
    )
    bar.add_task("", total=1, rate="")
    return bar


def _format_speed(rate: float) -> str:
    """Write rounds a second, or below one the seconds of a round."""
    value, unit = (rate, "rounds/s") if rate >= 1 else (1 / rate, "s/round")
    return f"{value:.{0 if value >= 10 else 1}f} {unit}"
