"""Print to the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def plain_console(stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console that prints texts as they are, without guessing at colours; quiet: nothing.

    What `otafl --help` does not need is imported when it is asked for.
    """
    from rich.console import Console

    return Console(stderr=stderr, quiet=quiet, highlight=False, markup=False)
