"""Mutations: named mistakes in the code, each of which makes certain laws fail.

Every module of laws lists those of its laws in `MUTATIONS`. `tests/laws/test_mutations.py` puts
them into the code one by one, and the laws that a mutation names fail. The other laws of its family
hold, with several mutations at a time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Replacement:
    """Replacement of a part of the code.

    Parameters
    ----------
    path : str
        Place of the part, `module:name` or `module:Class.name`.
    make : callable
        Function from the part to its replacement.
    """

    path: str
    make: Callable[[Any], Any]


@dataclass(frozen=True)
class Mutation:
    """Mistake that laws detect.

    Parameters
    ----------
    name : str
        Description of the mistake.
    family : str
        Beginning of the names of the laws on which the mutation is tried.
    laws : frozenset of str
        Rest of the names of those that fail.
    replacement : Replacement
        The mistake.
    quick : bool
        Whether they also fail with quick samples.
    """

    name: str
    family: str
    laws: frozenset[str]
    replacement: Replacement
    quick: bool = True

    @property
    def failing_laws(self) -> frozenset[str]:
        """Full names of the laws that fail."""
        return frozenset(self.family + law for law in self.laws)

    def find(self) -> tuple[Any, str]:
        """Find the replaced attribute.

        Returns
        -------
        owner : Any
            Module or class that has it.
        name : str
            Its name.

        Raises
        ------
        LookupError
            If it does not exist, because the code was renamed or the path is mistyped.
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
                f"{self.replacement.path} ({error}); give the current path"
            ) from error
        return owner, name


Row = tuple[str | set[str], Replacement]
"""Law or laws that fail, without the family, and the replaced part."""


def build_mutations(family: str, table: Mapping[str, Row], quick: bool = True) -> list[Mutation]:
    """List the mutations of a table: name -> laws that fail, and the replaced part."""
    return [
        Mutation(name, family, frozenset({laws} if isinstance(laws, str) else laws), mistake, quick)
        for name, (laws, mistake) in table.items()
    ]


def replace_by(path: str, make: Callable[[Any], Any]) -> Replacement:
    """Replace a function, method or value by the result of `make` on it."""
    return Replacement(path, make)


def replace_by_value(path: str, value: Any) -> Replacement:
    """Replace a part by a value."""
    return Replacement(path, lambda real: value)


def change_result(path: str, change: Callable[[Any], Any]) -> Replacement:
    """Change the result of a function or method."""
    return Replacement(path, lambda real: lambda *args, **keys: change(real(*args, **keys)))


def scale_result(path: str, factor: float) -> Replacement:
    """Multiply the result of a function or method, or the first of its results; None stays None."""

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
    """Change the objects of a class, `module:Class`, after their construction."""
    return change_after(f"{path}.__init__", change)
