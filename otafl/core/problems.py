"""What is wrong with a scenario: said by whoever finds it, told by `otafl.scenario`."""

from __future__ import annotations

from dataclasses import dataclass

Path = tuple[str | int, ...]
"""Keys and list indices from the top of a scenario to a value."""


@dataclass(frozen=True)
class Problem:
    """message: what is wrong, its key included. path: where. others: more keys it depends on."""

    message: str
    path: Path = ()
    others: tuple[Path, ...] = ()


def problem(text: str, key: str, *others: str) -> Problem:
    """Make the problem of a dotted key, which the message begins with."""
    paths = (tuple(one.split(".")) for one in others)
    return Problem(f"{key}: {text}", tuple(key.split(".")), tuple(paths))
