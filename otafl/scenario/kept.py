"""What is worked out of a scenario once, and kept for as long as the scenario exists."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

from otafl.scenario.schema import Scenario

T = TypeVar("T")


class Kept(Generic[T]):
    """A value for each of some scenarios that exist.

    Scenarios are frozen, so the value stays right. They are told apart by identity: comparing two
    takes as long as building one.
    """

    def __init__(self) -> None:
        self._values: dict[int, tuple[weakref.ref[Scenario], T]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, scenario: Scenario) -> T | None:
        """Return the value of a scenario, or None."""
        own, value = self._values.get(id(scenario), (None, None))
        return value if own is not None and own() is scenario else None

    def keep(self, scenario: Scenario, value: T) -> T:
        """Return the value of a scenario, which `get` returns from now on."""
        key = id(scenario)
        reference = weakref.ref(scenario, lambda _: self._values.pop(key, None))
        self._values[key] = reference, value
        return value
