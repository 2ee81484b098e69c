"""Errors in a scenario, which `otafl.scenario` reports to the user."""

from __future__ import annotations

from dataclasses import dataclass

Path = tuple[str | int, ...]
"""Keys and list indices from the top of a scenario to a value."""


@dataclass(frozen=True)
class Problem:
    """One error in a scenario.

    Parameters
    ----------
    message : str
        The error, with its key.
    path : Path
        Path of the faulty value.
    other_paths : tuple of Path
        Further keys that the error depends on.
    """

    message: str
    path: Path = ()
    other_paths: tuple[Path, ...] = ()


def make_problem(text: str, key: str, *others: str) -> Problem:
    """Make the problem of a dotted key, which starts the message."""
    paths = (tuple(one.split(".")) for one in others)
    return Problem(f"{key}: {text}", tuple(key.split(".")), tuple(paths))
