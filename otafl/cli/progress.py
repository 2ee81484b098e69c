"""Show how far a run or a sweep is."""

from __future__ import annotations

import sys
import time
from typing import Any

import typer

from otafl.cli.interrupts import guard

PLAIN_EVERY_S = 10.0
BAR_EVERY_S = 0.1


class Progress:
    """Display of calls with (rounds done, rounds in all, note).

    It is a bar in a terminal, else a line every `PLAIN_EVERY_S` and at the end; nothing if quiet.
    All output is on stderr.
    """

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.bar: Any = None
        self.first: tuple[int, float] | None = None
        self.last_shown_at = time.monotonic()

    def __enter__(self) -> Progress:
        if not self.quiet and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self.bar = progress.Progress(
                progress.TextColumn("{task.completed:.0f}/{task.total:.0f} rounds", markup=False),
                progress.BarColumn(bar_width=None),
                progress.TextColumn("{task.fields[rate]}", markup=False),
                progress.TimeRemainingColumn(),
                progress.TextColumn("{task.description}", markup=False),
                console=Console(stderr=True),
                expand=True,
            )
            self.bar.start()
            self.bar.add_task("", total=1, rate="")
        return self

    def __call__(self, done: int, total: int, note: str = "") -> None:
        guard.check()
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
            self.bar.update(0, completed=done, total=total, rate=speed, description=note)
            return
        left = f"{(total - done) / rate:.0f} s left" if speed and done < total else ""
        line = ", ".join(part for part in (f"{done}/{total} rounds", speed, left, note) if part)
        typer.echo(line, err=True)

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def _format_speed(rate: float) -> str:
    """Write rounds a second, or below one the seconds of a round."""
    value, unit = (rate, "rounds/s") if rate >= 1 else (1 / rate, "s/round")
    return f"{value:.{0 if value >= 10 else 1}f} {unit}"
