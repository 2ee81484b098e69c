"""Sections that name a user-defined part, `module:callable`, and checks of what its methods return.

`CustomFunction` is the section of a table whose parts are functions, or other callables, which are
called with the section's other keys. `CustomClass` is the section of a table whose parts are
classes derived from its package's contract. Its keys are the fields of the class's settings. A
table states arguments, base class and checks of results in the module `custom` of its package.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
from pydantic import ConfigDict, Field

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.core.settings import Settings, list_stackable_fields
from otafl.core.suggestions import format_unknown_key
from otafl.user_code import loading


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

    def find_function(self) -> Any:
        return loading.load_checked(self.name, self.key, self.options, *self.positional_names)

    def call(self, *given: Any, **keys: Any) -> Any:
        """Return the function's result; its own errors pass through."""
        return self.find_function()(*given, **(self.options | keys))


@dataclass(frozen=True)
class Call:
    """A call of a user-defined method whose result is checked.

    Parameters
    ----------
    said : str
        Start of the message: the method and its part.
    place : str
        End of the message: the place of the method.
    part : Any
        The component.
    given : mapping
        The arguments by name before the call; named tensors by their shapes.
    """

    said: str
    place: str
    part: Any
    given: Mapping[str, Any]

    def require(self, fine: bool, fault: str, wanted: str) -> None:
        """Raise UserError unless the result is valid."""
        if not fine:
            raise UserError(f"{self.said} {fault}; expected {wanted}{self.place}")


Check = Callable[[Call, Any], Any]
"""Check of a method's result: it returns the value, or raises UserError.

It looks only at types, shapes and, on the host, numbers.
"""


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
        kind: Any = loading.load(self.name, self.key)
        table = registry.TABLES[self.table]
        noun, like = self.noun or table.noun, registry.load_component(self.table, table.default)
        if not (inspect.isclass(kind) and issubclass(kind, self.base_class)):
            self.refuse(
                f"is no {noun}; derive the class from one, like {like.__module__}.{like.__name__}, "
                f"or from {self.base_class.__module__}.{self.base_class.__name__}"
            )
        if inspect.isabstract(kind):
            lacking = ", ".join(sorted(getattr(kind, "__abstractmethods__", ())))
            self.refuse(
                f"has no {lacking}; derive it from a {noun}, like {like.__module__}."
                f"{like.__name__}, or write it"
            )
        fields = registry.get_settings_class(kind)
        if not (inspect.isclass(fields) and issubclass(fields, Settings)):
            self.refuse(
                "has a Settings that is no class of settings; write class Settings("
                f"{like.__name__}.Settings)"
            )
        return kind

    @property
    def values(self) -> Settings:
        """The section as the class's settings. Raises pydantic's ValidationError."""
        kind = registry.get_settings_class(self.component_class)
        return kind.model_validate(self.options).model_copy(update={"name": self.name})

    @property
    def stackable_names(self) -> tuple[str, ...]:
        return list_stackable_fields(registry.get_settings_class(self.component_class))

    def find_function(self) -> Any:
        return self.component_class

    def build(self, *args: Any) -> Any:
        """Make the user-defined component, with checks of its methods' results.

        Methods that it inherits from the contract are not checked.
        """
        kind = self.component_class
        made = self.values if issubclass(kind, Settings) else kind(self.values, *args)
        for method, check in self.returns.items():
            if getattr(kind, method) is not getattr(self.base_class, method):
                vars(made)[method] = self._wrap_method(made, method, check)
        return made

    def _wrap_method(self, made: Any, method: str, check: Check) -> Callable[..., Any]:
        """Return a method that checks its result.

        It gets copies of arrays, and the check gets the arguments under the contract's names.
        """
        written = getattr(made, method)
        names = list(inspect.signature(getattr(self.base_class, method)).parameters)[1:]
        place = loading.locate(getattr(type(made), method))
        said = f"{self.key}: {method} of '{self.name}' returned"

        def call(*args: Any, **keys: Any) -> Any:
            every = dict(zip(names, args, strict=False)) | keys
            given = {
                name: describe_shapes(one) if _has_shapes(one) else one
                for name, one in every.items()
            }
            own = (one.copy() if isinstance(one, np.ndarray) else one for one in args)
            return check(Call(said, place, made, given), written(*own, **keys))

        return call

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Return also the keys that are not the class's.

        Raises pydantic's ValidationError for invalid values.
        """
        path = registry.TABLES[self.table].path
        try:
            kind = registry.get_settings_class(self.component_class)
            known = [name for name in kind.model_fields if name != "name"]
            unknown = [
                make_problem(format_unknown_key(word, known), ".".join((*path, word)))
                for word in self.options
                if word not in known
            ]
            return unknown or self.values.check(scenario)
        except UserError as error:
            return [Problem(str(error), (*path, "name"))]


def check_parts(wanted: str, *checks: Check) -> Check:
    """Require a tuple with one part for each check, and apply the checks."""

    def check(call: Call, value: Any) -> Any:
        fine = isinstance(value, tuple) and len(value) == len(checks)
        call.require(fine, describe_kind(value), wanted)
        return tuple(one(call, part) for one, part in zip(checks, value, strict=True))

    return check


def check_blocks(argument: str, whose: str, note: str = "as before") -> Check:
    """Require named tensors of the names and shapes of an argument."""

    def check(call: Call, value: Any) -> Any:
        before = call.given[argument]
        check_tensors(call, value, f"{whose} blocks {sorted(before)}, {note}")
        now = describe_shapes(value)
        same = now.keys() == before.keys()
        call.require(same, f"{whose} blocks {sorted(now)}", f"{sorted(before)}, {note}")
        for name, shape in now.items():
            got = f"{whose} block '{name}' of shape {shape}"
            call.require(shape == before[name], got, f"{before[name]}, {note}")
        return value

    return check


def check_tensors(call: Call, value: Any, wanted: str = "a dict of tensors") -> Any:
    """Require named tensors of any names and shapes."""
    call.require(_has_shapes(value), describe_kind(value), wanted)
    return value


def check_shape(
    shape: Callable[[Mapping[str, Any]], Sequence[int]],
    what: str = "",
    note: str = "",
    one: bool = False,
) -> Check:
    """Require an array of a shape; with `one`, a number that stands for all is expanded to it."""

    def check(call: Call, value: Any) -> Any:
        wanted = list(shape(call.given))
        value = np.asarray(value, float) if one else value
        got = list(value.shape) if hasattr(value, "shape") else type(value).__name__
        fine = got == wanted or (one and got == [])
        call.require(fine, f"{what}{got}", f"{'one number, or ' * one}{wanted}{note}")
        return np.broadcast_to(value, wanted) if one else value

    return check


def check_rows(call: Call, what: str, named: Mapping[str, Any], counts: Sequence[int]) -> None:
    """Require that every named tensor has as many rows as one of the counts."""
    for name, block in named.items():
        got = f"{what} '{name}' of shape {list(block.shape)}"
        call.require(len(block) in counts, got, f"[{counts[0]}, ...], one row per device")


def _has_shapes(value: Any) -> bool:
    return isinstance(value, dict) and all(hasattr(one, "shape") for one in value.values())


def describe_shapes(value: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the shapes of named tensors."""
    return {name: list(block.shape) for name, block in value.items()}


def describe_kind(value: Any) -> str:
    """Return the type of a value, with an article."""
    return f"a {type(value).__name__}"
