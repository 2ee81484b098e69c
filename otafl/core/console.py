"""Output to the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def make_console(stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console that prints texts unchanged, without guessing at colours; if quiet, nothing.

    Rich is imported here because `otafl --help` does not need it.
    """
    from rich.console import Console

    return Console(stderr=stderr, quiet=quiet, highlight=False, markup=False)
