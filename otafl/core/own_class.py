"""Take a component of the user's own that is a class, derived from its package's contract.

The keys of its section are the fields of the class's settings. What checks the class's results is a
class too, put before the user's in the order in which methods are looked up.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NoReturn

from pydantic import create_model

from otafl.core import custom, registry
from otafl.core.errors import UserError
from otafl.core.problems import Problem, problem
from otafl.core.settings import CustomSettings, Settings, stackable_fields
from otafl.core.words import did_you_mean


class OwnClass(CustomSettings):
    """The section names a class of the user's, `module:Class`, whose settings' fields are the
    section's other keys."""

    table: ClassVar[str]
    """The registry's table that the section chooses from."""

    noun: ClassVar[str]
    """What a component is called."""

    contract: ClassVar[type[Any]]
    """What the class must derive from."""

    like: ClassVar[type[Any]]
    """A component that it can derive from instead."""

    @property
    def kind(self) -> type[Any]:
        """Return the user's class. Raises UserError if there is none, or it is not of the kind."""
        kind = custom.load(self.name, f"{self._section}.name")
        if not (inspect.isclass(kind) and issubclass(kind, self.contract)):
            self._unfit(
                f"is no {self.noun}; a class that derives from one, like {_full(self.like)}, or "
                f"from {_full(self.contract)} would do"
            )
        lacking = sorted(getattr(kind, "__abstractmethods__", ()))
        if lacking:
            self._unfit(
                f"has no {', '.join(lacking)}; derive it from a {self.noun}, like "
                f"{_full(self.like)}, or write it"
            )
        fields = registry.settings_of(kind)
        if not (inspect.isclass(fields) and issubclass(fields, Settings)):
            parent = next(one for one in kind.__mro__[1:] if "Settings" in vars(one))
            self._unfit(
                f"has a Settings that is no class of settings; class Settings({parent.__name__}."
                "Settings) would do"
            )
        return kind

    @property
    def values(self) -> Settings:
        """Return the section as the class's settings. Raises pydantic's ValidationError."""
        kind = _named(registry.settings_of(self.kind))
        return kind.model_validate(self.options | {"name": self.name})

    @property
    def stackable(self) -> tuple[str, ...]:
        try:
            return stackable_fields(registry.settings_of(self.kind))
        except custom.NotImported:
            return ()

    def found(self) -> Any:
        return self.kind

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Return also which keys are not the class's. Raises pydantic's ValidationError, as if the
        whole scenario had been read, where their values cannot be."""
        try:
            kind = registry.settings_of(self.kind)
        except UserError as error:
            return [Problem(str(error), (*registry.TABLES[self.table].path, "name"))]
        known = [name for name in kind.model_fields if name != "name"]
        unknown = [word for word in self.options if word not in known]
        if unknown:
            return [self._unknown(word, known) for word in unknown]
        whole, tree = _named(kind), self.options | {"name": self.name}
        for part in reversed(registry.TABLES[self.table].path):
            whole = create_model("Scenario", **{part: (whole, ...)})  # type: ignore[call-overload]
            tree = {part: tree}
        whole.model_validate(tree)
        return self.values.check(scenario)

    def checked(self, checks: type[Any]) -> Any:
        """Return a class that is the user's, after one that checks what its methods return; `said`
        is what the scenario calls it."""
        kind = self.kind
        body = {"said": self.name, "__module__": kind.__module__}
        return types.new_class(kind.__name__, (checks, kind), exec_body=lambda ns: ns.update(body))

    @property
    def _section(self) -> str:
        return registry.TABLES[self.table].section

    def _unknown(self, word: str, known: Sequence[str]) -> Problem:
        text = f"unknown key{did_you_mean(word, known)} (known keys: {', '.join(known)})"
        return problem(text, f"{self._section}.{word}")

    def _unfit(self, fault: str) -> NoReturn:
        raise UserError(f"{self._section}.name: {self.name!r} {fault}")


def refuse(section: str, said: str, part: str, fault: str, wanted: str) -> NoReturn:
    """Raise the UserError of a method of the user's class that returned something else."""
    raise UserError(f"{section}.name: {part} of '{said}' returned {fault}; {wanted} would do")


def shapes(blocks: Any) -> dict[str, list[int]] | str:
    """Return the shapes of named tensors; what else it is, in words."""
    if isinstance(blocks, dict) and all(hasattr(one, "shape") for one in blocks.values()):
        return {name: list(block.shape) for name, block in blocks.items()}
    return f"a {type(blocks).__name__}"


@functools.cache
def _named(kind: type[Settings]) -> type[Settings]:
    """Return a settings class with the name that the scenario gives, whatever name its parent
    has."""
    name: Any = (str, ...)
    return create_model(kind.__name__, __base__=kind, __module__=kind.__module__, name=name)


def _full(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__name__}"
