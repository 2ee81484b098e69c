"""Sections that name a user-defined part, `module:callable`.

`OwnFunction` is the section of a table whose parts are functions, or other callables, which are
called with the section's other keys. `OwnClass` is the section of a table whose parts are classes
derived from its package's contract. Its keys are the fields of the class's settings. A table
declares the arguments or base classes of its parts, and the results of their methods, in the module
`custom` of its package.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from pydantic import ConfigDict, Field, create_model

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.problems import Problem, problem
from otafl.core.settings import Settings, stackable_fields
from otafl.core.words import did_you_mean
from otafl.user_code import loading
from otafl.user_code.returned import Check, wrap_method


class OwnPart(Settings):
    """A section that names a user-defined part, `module:callable`, and has the part's keys."""

    model_config = ConfigDict(extra="allow", frozen=True)

    table: ClassVar[str]
    """The registry's table that the section chooses from."""

    decides: ClassVar[bool] = True
    """Whether results depend on it."""

    name: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")

    @property
    def options(self) -> dict[str, Any]:
        """The keys of the section that are the callable's."""
        return dict(self.model_extra or {})

    @property
    def key(self) -> str:
        """The key of a scenario that names the part, for messages."""
        return f"{registry.TABLES[self.table].section}.name"

    def found(self) -> Any:
        """Import and return the named part.

        Raises UserError if it does not exist, or does not accept the section's keys.
        """
        raise NotImplementedError

    def refuse(self, fault: str) -> NoReturn:
        """Raise the UserError of a part that does not satisfy its contract."""
        raise UserError(f"{self.key}: '{self.name}' {fault}")


class OwnFunction(OwnPart):
    """A section that names a user-defined function, which is called with its other keys."""

    given: ClassVar[tuple[str, ...]] = ()
    """Arguments that the function gets by position, before the keys."""

    keys: ClassVar[tuple[str, ...]] = ()
    """Arguments that it gets by name, besides the section's keys."""

    def found(self) -> Any:
        keys = self.options | dict.fromkeys(self.keys)
        return loading.fitting(self.name, self.key, keys, *self.given)

    def call(self, *given: Any, **keys: Any) -> Any:
        """Return the function's result; its own errors pass through."""
        return self.found()(*given, **(self.options | keys))


class OwnClass(OwnPart):
    """A section that names a user-defined class, `module:Class`.

    The section's other keys are the fields of the class's settings.
    """

    noun: ClassVar[str] = ""
    """Noun for a component, if it differs from the table's."""

    contract: ClassVar[type[Any]]
    """Base class that the class must derive from."""

    returns: ClassVar[Mapping[str, Check]]
    """Method -> the check of its result."""

    @property
    def kind(self) -> type[Any]:
        """The user-defined class. Raises UserError if there is none, or it is of another kind."""
        kind = loading.load(self.name, self.key)
        table = registry.TABLES[self.table]
        like, noun = _full(registry.component(self.table, table.default)), self.noun or table.noun
        if not (inspect.isclass(kind) and issubclass(kind, self.contract)):
            self.refuse(
                f"is no {noun}; derive the class from one, like {like}, or from "
                f"{_full(self.contract)}"
            )
        lacking = sorted(getattr(kind, "__abstractmethods__", ()))
        if lacking:
            self.refuse(
                f"has no {', '.join(lacking)}; derive it from a {noun}, like {like}, or write it"
            )
        fields = registry.settings_of(kind)
        if not (inspect.isclass(fields) and issubclass(fields, Settings)):
            parent = next(one for one in kind.__mro__[1:] if "Settings" in vars(one))
            self.refuse(
                f"has a Settings that is no class of settings; write class Settings("
                f"{parent.__name__}.Settings)"
            )
        return kind

    @property
    def values(self) -> Settings:
        """The section as the class's settings. Raises pydantic's ValidationError."""
        kind = _named(registry.settings_of(self.kind))
        return kind.model_validate(self.options | {"name": self.name})

    @property
    def stackable(self) -> tuple[str, ...]:
        try:
            return stackable_fields(registry.settings_of(self.kind))
        except loading.NotImported:
            return ()

    def found(self) -> Any:
        return self.kind

    def made(self, *given: Any) -> Any:
        """Make the user-defined component, with checks of its methods' results.

        Methods that it inherits from the contract are not checked.
        """
        kind = self.kind
        body: dict[str, Any] = {"__module__": kind.__module__}
        for method, check in self.returns.items():
            if getattr(kind, method) is not getattr(self.contract, method):
                said = f"{self.key}: {method} of '{self.name}' returned"
                body[method] = wrap_method(kind, self.contract, method, check, said)
        whole: Any = types.new_class(kind.__name__, (kind,), exec_body=lambda ns: ns.update(body))
        if issubclass(kind, Settings):  # it is its settings
            return whole.model_validate(self.options)
        return whole(self.values, *given)

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Return also the keys that are not the class's.

        Raises pydantic's ValidationError for invalid values, as if the whole scenario had been
        read.
        """
        path = registry.TABLES[self.table].path
        try:
            kind = registry.settings_of(self.kind)
        except UserError as error:
            return [Problem(str(error), (*path, "name"))]
        known = [name for name in kind.model_fields if name != "name"]
        unknown = [word for word in self.options if word not in known]
        if unknown:
            return [self._unknown(word, known) for word in unknown]
        whole, tree = _named(kind), self.options | {"name": self.name}
        for part in reversed(path):
            whole = create_model("Scenario", **{part: (whole, ...)})  # type: ignore[call-overload]
            tree = {part: tree}
        whole.model_validate(tree)
        return self.values.check(scenario)

    def _unknown(self, word: str, known: Sequence[str]) -> Problem:
        text = f"unknown key{did_you_mean(word, known)} (known keys: {', '.join(known)})"
        return problem(text, f"{self.key.removesuffix('name')}{word}")


@functools.cache
def _named(kind: type[Settings]) -> type[Settings]:
    """Return a settings class that accepts any name, for the name that the scenario gives."""
    name: Any = (str, ...)
    return create_model(kind.__name__, __base__=kind, __module__=kind.__module__, name=name)


def _full(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__name__}"
