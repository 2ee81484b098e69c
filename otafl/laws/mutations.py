"""Mutations: named mistakes in the code, each of which must make the laws fail that it names.

Every module of laws lists those of its laws in `MUTATIONS`. `tests/laws/test_mutations.py` puts
them into the code one by one: of the laws that a mutation is tried on, those that it names fail and
the others hold.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Replacement:
    """What is replaced, and by what.

    path: `module:name` or `module:Class.name`. make: returns the replacement of what is there.
    """

    path: str
    make: Callable[[Any], Any]


@dataclass(frozen=True)
class Mutation:
    """A mistake that laws notice.

    name: what is wrong. family: how the names of the laws begin that it is tried on. laws: the rest
    of the names of those that fail. quick: whether they fail with the quick samples too.
    """

    name: str
    family: str
    laws: frozenset[str]
    replacement: Replacement
    quick: bool = True

    @property
    def failing_laws(self) -> frozenset[str]:
        """Return the whole names of the laws that fail."""
        return frozenset(self.family + law for law in self.laws)

    def find(self) -> tuple[Any, str]:
        """Return the module or class and the name of the attribute that is replaced.

        Raises
        ------
        LookupError
            If there is none: the code has been renamed, or the path is mistyped.
        """
        module, _, names = self.replacement.path.partition(":")
        try:
            owner: Any = importlib.import_module(module)
            *outer, name = names.split(".")
            for part in outer:
                owner = getattr(owner, part)
            getattr(owner, name)
        except (ImportError, AttributeError) as error:
            laws = ", ".join(sorted(self.failing_laws))
            raise LookupError(
                f"mutation '{self.name}' of the laws {laws}: nothing is at "
                f"{self.replacement.path} ({error}); give the path that the code has now"
            ) from error
        return owner, name


Row = tuple[str | set[str], Replacement]
"""The law or laws that fail, without the family, and what is replaced."""


def build_mutations(family: str, table: Mapping[str, Row], quick: bool = True) -> list[Mutation]:
    """List the mutations of a table: name -> the laws that fail, and what is replaced."""
    return [
        Mutation(name, family, frozenset({laws} if isinstance(laws, str) else laws), mistake, quick)
        for name, (laws, mistake) in table.items()
    ]


def replace_by(path: str, make: Callable[[Any], Any]) -> Replacement:
    """Replace a function, method or value by what `make` makes of it."""
    return Replacement(path, make)


def replace_by_value(path: str, value: Any) -> Replacement:
    """Replace by a value, whatever was there."""
    return Replacement(path, lambda real: value)


def change_result(path: str, change: Callable[[Any], Any]) -> Replacement:
    """Change the result of a function or method."""
    return Replacement(path, lambda real: lambda *args, **keys: change(real(*args, **keys)))


def scale_result(path: str, factor: float) -> Replacement:
    """Multiply the result of a function or method, or the first of its results; None stays."""

    def change(out: Any) -> Any:
        if out is None:
            return None
        return (factor * out[0], *out[1:]) if isinstance(out, tuple) else factor * out

    return change_result(path, change)


def change_after(path: str, change: Callable[[Any], None]) -> Replacement:
    """Change an object at the end of a method of its class, `module:Class.method`."""

    def make(real: Any) -> Any:
        def method(self: Any, *args: Any, **keys: Any) -> None:
            real(self, *args, **keys)
            change(self)

        return method

    return Replacement(path, make)


def change_objects(path: str, change: Callable[[Any], None]) -> Replacement:
    """Change objects of a class, `module:Class`, once they are made."""
    return change_after(f"{path}.__init__", change)
