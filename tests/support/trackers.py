"""Trackers of the user's, as `support.trackers:...`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

TOLD: list[tuple[Any, ...]] = []
"""What happened: (name of the run, "begin"), (.., round, value), (.., "end")."""


@contextlib.contextmanager
def noted(run: Any, fails_at: int = -1, at_end: bool = False) -> Iterator[Callable[..., None]]:
    """Note everything; fail at a round, or as it is left."""
    TOLD.append((run.name, "begin"))

    def log(round: int, values: Mapping[str, float]) -> None:
        if round == fails_at and run.trial == 0:
            raise ConnectionError("the service is gone")
        TOLD.append((run.name, round, values["test_accuracy"]))

    yield log
    TOLD.append((run.name, "end"))
    if at_end:
        raise ConnectionError("it cannot be closed")


def undecorated(run: Any) -> Iterator[Callable[..., None]]:
    """Return a generator, which is no context manager."""
    yield lambda round, values: None


def broken(run: Any) -> None:
    """Fail before the first round."""
    raise ModuleNotFoundError("No module named 'nowhere'")
