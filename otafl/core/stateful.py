"""Parts of a run whose state is saved in checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar


class Stateful:
    """A part of a run that may change from round to round.

    Checkpoints save the attributes in `state_attrs`. They must contain everything from earlier
    rounds that later rounds depend on; recomputable values (caches, draws of a named stream) are
    not needed. Values are plain data: tensors, NumPy arrays, numbers, texts, None, and dicts,
    lists, tuples and sets of these, or a dataclass or named tuple of plain data.
    """

    state_attrs: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that are saved."""

    def state_dict(self) -> dict[str, Any]:
        """Return name -> value, as plain data."""
        return {name: _to_tuple(getattr(self, name)) for name in self.state_attrs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of another part of the same kind.

        Raises KeyError, TypeError or ValueError if the state is of something else.
        """
        for name in self.state_attrs:
            setattr(self, name, _from_tuple(getattr(self, name), state[name]))


def _to_tuple(value: Any) -> Any:
    """Return a dataclass or a named tuple as the tuple of its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(getattr(value, field.name) for field in dataclasses.fields(value))
    return tuple(value) if isinstance(value, tuple) else value


def _from_tuple(template: Any, value: Any) -> Any:
    """Return a value as the dataclass or named tuple of the part's current value."""
    if dataclasses.is_dataclass(template) and not isinstance(template, type):
        return type(template)(*value)
    return type(template)(*value) if hasattr(template, "_fields") else value
