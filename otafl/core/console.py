"""Output to the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


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
