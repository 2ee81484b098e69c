"""Former names of contracts, which still work with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar


class Renamed:
    """A contract whose methods had other names.

    A user-defined class with an old name works. The method gets its new name, and a
    `DeprecationWarning` names both.
    """

    old_names: ClassVar[Mapping[str, str]] = {}
    """Old name of a method or attribute -> its new one, including those of base classes."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        tables = [vars(kind).get("old_names", {}) for kind in cls.__mro__]
        for old, new in (row for table in tables for row in table.items()):
            if old in vars(cls) and new not in vars(cls):
                warnings.warn(
                    f"{cls.__qualname__}.{old} is now called {new}; rename it",
                    DeprecationWarning,
                    stacklevel=2,
                )
                setattr(cls, new, vars(cls)[old])


def old_name(old: str, new: str) -> property:
    """Return a property that reads another attribute and warns."""

    def read(self: Any) -> Any:
        warnings.warn(
            f"{type(self).__name__}.{old} is now called {new}", DeprecationWarning, stacklevel=2
        )
        return getattr(self, new)

    return property(read, doc=f"Old name of `{new}`.")
