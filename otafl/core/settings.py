"""Describe settings, and mark the fields in which trials of a stack may differ.

Settings are at once the YAML schema of a component or section, its documentation and the only place
that its numbers are read from. Nothing here imports torch.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from otafl.core.errors import RemovedSetting
from otafl.core.problems import Problem

Decibels = Annotated[float, Field(ge=-1000, le=1000)]
"""A level in dB, dBm or dBi: 10^100 to one either way is more than any radio has, and float64 still
computes with it."""


@dataclass(frozen=True)
class Reveals:
    """A choice by which devices tell the server of their data outside of what noise covers.

    It stands in the metadata of a settings field, `Annotated[bool, Reveals(True, False, "...")]`.

    Parameters
    ----------
    choice : value of the field that reveals.
    instead : value that does not.
    what : what it reveals, as a noun phrase.
    """

    choice: Any
    instead: Any
    what: str


class Settings(BaseModel):
    """Settings are frozen; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    example: ClassVar[Mapping[str, Any]] = {}
    """What a scenario that tries the component out needs beside its name: dotted key -> value."""

    small: ClassVar[Mapping[str, Any]] = {}
    """Own fields with which the component does in few rounds of few devices what it is for."""

    reads: ClassVar[tuple[str, ...]] = ()
    """Fields that name a file which results depend on."""

    @property
    def stackable(self) -> tuple[str, ...]:
        """Return the fields over which trials of one stack may differ."""
        return stackable_fields(type(self))

    @property
    def values(self) -> Settings:
        """Return the settings themselves; of a component of the user's own, those of his class."""
        return self

    @property
    def implied(self) -> Mapping[str, Any]:
        """Return what holds for keys that are not given and have no default of their own."""
        return {}

    @property
    def assumes_increments(self) -> str:
        """Return why what devices send must be increments ("takes a vote of signs"); empty where it
        need not."""
        return ""

    def made(self, *given: Any) -> Any:
        """Return the component of these settings, where they are it: themselves."""
        return self

    def notes(self, scenario: Any) -> Iterable[str]:
        """Return what is no error, but hardly meant, between these settings and the rest of the
        scenario; asked of the sections `algorithm`, `transport` and `topology`."""
        return ()

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Return what is wrong between these settings and the rest of the scenario."""
        return ()


def stackable(default: Any = ..., *, introduced: Any = None, **constraints: Any) -> Any:
    """Declare a numeric field that changes neither a tensor's shape nor the flow of control: points
    of a sweep that differ in it alone run in one batched program.

    introduced: the first default of a field whose default has changed.
    """
    extra = {"stackable": True} | ({} if introduced is None else {"introduced": introduced})
    return Field(default, json_schema_extra=extra, **constraints)


def removed(**last: Any) -> Any:
    """Declare keys that a settings class no longer has, `_gone = removed(family="gaussian")`.

    Old files still hold them. A key at its last default is left out with a warning; any other value
    is an error. A scenario's hash never had a key at its default, so it stays.

    Parameters
    ----------
    last : key -> its last default, which is what holds today.
    """

    def leave_out(cls: type[BaseModel], given: Any) -> Any:
        stale = last.keys() & given.keys() if isinstance(given, Mapping) else ()
        for key in sorted(stale):
            gone = f"was removed, and only {last[key]!r} holds now; delete the key"
            if given[key] != last[key]:
                raise ValueError(f"{key}: got {given[key]!r}, but this setting {gone}")
            text = f"the setting '{key}' of '{given.get('name', cls.__qualname__)}' {gone}"
            warnings.warn(text, RemovedSetting, stacklevel=2)
        return {key: value for key, value in given.items() if key not in stale} if stale else given

    return model_validator(mode="before")(leave_out)


GIVEN: Final = object()
"""Any value of a field but its default, which stored scenarios spell out."""


def requires(key: str, value: Any, *, why: str = "", **others: Any) -> Any:
    """Declare a value of a field that needs values of others, `_rate = requires("coding", "ldpc",
    rate="mcs")`; `GIVEN` is any but the default.

    Parameters
    ----------
    why : the reason, for the message, as a main clause.
    """
    return _refuse(
        why,
        lambda one: _has(one, {key: value}) and not _has(one, others),
        lambda one: f"{_show(one, key)} needs {_list_wanted(one, others)}",
        f"change {' and '.join(others)} or {key}",
    )


def only_with(key: str, *, why: str = "", **others: Any) -> Any:
    """Declare a field that is given only where others have certain values; see `requires`."""
    return _refuse(
        why,
        lambda one: _has(one, {key: GIVEN}) and not _has(one, others),
        lambda one: f"{_show(one, key)} is only for {_list_wanted(one, others)}",
        f"leave {key} out, or change {' and '.join(others)}",
    )


def excludes(*keys: str, why: str = "", **others: Any) -> Any:
    """Declare fields that are not given together, nor where others have certain values; see
    `requires`."""
    together = dict.fromkeys(keys, GIVEN) | others
    return _refuse(
        why,
        lambda one: _has(one, together),
        lambda one: f"{' and '.join(_show(one, key) for key in together)} exclude each other",
        "change one of them",
    )


def _refuse(why: str, broken: Callable[[Any], bool], fault: Callable[[Any], str], mend: str) -> Any:
    def check(settings: BaseModel) -> BaseModel:
        if broken(settings):
            raise ValueError(f"{fault(settings)}{why and f', since {why}'}; {mend}")
        return settings

    return model_validator(mode="after")(check)


def _has(settings: BaseModel, values: Mapping[str, Any]) -> bool:
    """Return whether fields have these values."""
    for key, wanted in values.items():
        value = getattr(settings, key)
        default = type(settings).model_fields[key].default
        if value == default if wanted is GIVEN else value != wanted:
            return False
    return True


def _show(settings: BaseModel, key: str) -> str:
    """Return a field and its value, as the scenario has it."""
    return f"{key}: {_write(getattr(settings, key))}"


def _list_wanted(settings: BaseModel, values: Mapping[str, Any]) -> str:
    """Return which fields should have which values, and which they have."""
    got = {key: _write(getattr(settings, key)) for key in values}
    return " and ".join(
        f"{key}, which is not given" if one is GIVEN else f"{key}: {_write(one)} (got {got[key]})"
        for key, one in values.items()
    )


def _write(value: Any) -> str:
    """Return a value as YAML has it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_write, value))}]"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def list_former_defaults(settings: type[BaseModel]) -> dict[str, Any]:
    """Return the first default of each field whose default has changed since."""
    return {
        name: info.json_schema_extra["introduced"]
        for name, info in settings.model_fields.items()
        if isinstance(info.json_schema_extra, dict) and "introduced" in info.json_schema_extra
    }


@functools.cache
def stackable_fields(settings: type[BaseModel]) -> tuple[str, ...]:
    """List the stackable fields of a settings class."""
    return tuple(
        name
        for name, info in settings.model_fields.items()
        if isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("stackable")
    )


def reveals(settings: type[BaseModel]) -> Iterator[tuple[str, Reveals]]:
    """Yield the fields of a settings class that have a choice by which devices reveal their data,
    each with that choice."""
    for name, info in settings.model_fields.items():
        yield from ((name, mark) for mark in info.metadata if isinstance(mark, Reveals))
