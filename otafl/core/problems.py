"""Say what is wrong with a scenario; `otafl.scenario` tells it the user."""

from __future__ import annotations

from dataclasses import dataclass

Path = tuple[str | int, ...]
"""Keys and list indices from the top of a scenario to a value."""


@dataclass(frozen=True)
class Problem:
    """Hold one thing that is wrong.

    Parameters
    ----------
    message : what is wrong, its key included.
    path : where.
    others : more keys that it depends on.
    """

    message: str
    path: Path = ()
    others: tuple[Path, ...] = ()


def problem(text: str, key: str, *others: str) -> Problem:
    """Make the problem of a dotted key, which the message begins with."""
    paths = (tuple(one.split(".")) for one in others)
    return Problem(f"{key}: {text}", tuple(key.split(".")), tuple(paths))
