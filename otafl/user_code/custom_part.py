"""Sections that name a user-defined part, `module:callable`.

`CustomFunction` is the section of a table whose parts are functions, or other callables, which are
called with the section's other keys. `CustomClass` is the section of a table whose parts are
classes derived from its package's contract. Its keys are the fields of the class's settings. A
table declares the arguments or base classes of its parts, and the results of their methods, in the
module `supports_custom` of its package.
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
from otafl.core.problems import Problem, make_problem
from otafl.core.settings import Settings, list_numbers_apart_from_null, list_stackable_fields
from otafl.core.suggestions import format_suggestion
from otafl.user_code import loading
from otafl.user_code.returned import Check, wrap_method


class CustomPart(Settings):
    """A section that names a user-defined part, `module:callable`, and has the part's keys."""

    model_config = ConfigDict(extra="allow", frozen=True)

    table: ClassVar[str]
    """The registry's table that the section chooses from."""

    affects_results: ClassVar[bool] = True
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

    def find_function(self) -> Any:
        """Import and return the named part.

        Raises UserError if it does not exist, or does not accept the section's keys.
        """
        raise NotImplementedError

    def refuse(self, fault: str) -> NoReturn:
        """Raise the UserError of a part that does not satisfy its contract."""
        raise UserError(f"{self.key}: '{self.name}' {fault}")


class CustomFunction(CustomPart):
    """A section that names a user-defined function, which is called with its other keys."""

    positional_names: ClassVar[tuple[str, ...]] = ()
    """Arguments that the function gets by position, before the keys."""

    extra_keys: ClassVar[tuple[str, ...]] = ()
    """Arguments that it gets by name, besides the section's keys."""

    def find_function(self) -> Any:
        keys = self.options | dict.fromkeys(self.extra_keys)
        return loading.load_checked(self.name, self.key, keys, *self.positional_names)

    def call(self, *given: Any, **keys: Any) -> Any:
        """Return the function's result; its own errors pass through."""
        return self.find_function()(*given, **(self.options | keys))


class CustomClass(CustomPart):
    """A section that names a user-defined class, `module:Class`.

    The section's other keys are the fields of the class's settings.
    """

    noun: ClassVar[str] = ""
    """Noun for a component, if it differs from the table's."""

    base_class: ClassVar[type[Any]]
    """Base class that the class must derive from."""

    returns: ClassVar[Mapping[str, Check]]
    """Method -> the check of its result."""

    @property
    def component_class(self) -> type[Any]:
        """The user-defined class. Raises UserError if there is none, or it is of another kind."""
        kind = loading.load(self.name, self.key)
        table = registry.TABLES[self.table]
        like, noun = (
            _format_class_path(registry.load_component(self.table, table.default)),
            self.noun or table.noun,
        )
        if not (inspect.isclass(kind) and issubclass(kind, self.base_class)):
            self.refuse(
                f"is no {noun}; derive the class from one, like {like}, or from "
                f"{_format_class_path(self.base_class)}"
            )
        lacking = sorted(getattr(kind, "__abstractmethods__", ()))
        if lacking:
            self.refuse(
                f"has no {', '.join(lacking)}; derive it from a {noun}, like {like}, or write it"
            )
        fields = registry.get_settings_class(kind)
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
        kind = _allow_any_name(registry.get_settings_class(self.component_class))
        return kind.model_validate(self.options | {"name": self.name})

    @property
    def stackable_names(self) -> tuple[str, ...]:
        kind = self._imported_settings_class
        return () if kind is None else list_stackable_fields(kind)

    @property
    def numbers_apart_from_null(self) -> frozenset[str]:
        kind = self._imported_settings_class
        return frozenset() if kind is None else list_numbers_apart_from_null(kind)

    @property
    def _imported_settings_class(self) -> type[Settings] | None:
        """The class's settings; None while its module must not be imported."""
        try:
            return registry.get_settings_class(self.component_class)
        except loading.NotImported:
            return None

    def find_function(self) -> Any:
        return self.component_class

    def build(self, *args: Any) -> Any:
        """Make the user-defined component, with checks of its methods' results.

        Methods that it inherits from the contract are not checked.
        """
        kind = self.component_class
        body: dict[str, Any] = {"__module__": kind.__module__}
        for method, check in self.returns.items():
            if getattr(kind, method) is not getattr(self.base_class, method):
                said = f"{self.key}: {method} of '{self.name}' returned"
                body[method] = wrap_method(kind, self.base_class, method, check, said)
        whole: Any = types.new_class(kind.__name__, (kind,), exec_body=lambda ns: ns.update(body))
        if issubclass(kind, Settings):  # it is its settings
            return whole.model_validate(self.options)
        return whole(self.values, *args)

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Return also the keys that are not the class's.

        Raises pydantic's ValidationError for invalid values, as if the whole scenario had been
        read.
        """
        path = registry.TABLES[self.table].path
        try:
            kind = registry.get_settings_class(self.component_class)
        except UserError as error:
            return [Problem(str(error), (*path, "name"))]
        known = [name for name in kind.model_fields if name != "name"]
        unknown = [word for word in self.options if word not in known]
        if unknown:
            return [self._make_unknown_key_problem(word, known) for word in unknown]
        whole, tree = _allow_any_name(kind), self.options | {"name": self.name}
        for part in reversed(path):
            whole = create_model("Scenario", **{part: (whole, ...)})  # type: ignore[call-overload]
            tree = {part: tree}
        whole.model_validate(tree)
        return self.values.check(scenario)

    def _make_unknown_key_problem(self, word: str, known_keys: Sequence[str]) -> Problem:
        keys = ", ".join(known_keys)
        text = f"unknown key{format_suggestion(word, known_keys)} (known keys: {keys})"
        return make_problem(text, f"{self.key.removesuffix('name')}{word}")


@functools.cache
def _allow_any_name(kind: type[Settings]) -> type[Settings]:
    """Return a settings class that accepts any name, for the name that the scenario gives."""
    name: Any = (str, ...)
    return create_model(kind.__name__, __base__=kind, __module__=kind.__module__, name=name)


def _format_class_path(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__name__}"
