"""Describe settings, and mark the fields in which trials of a stack may differ.

Settings are at once the YAML schema of a component or section, its documentation and the only place
that its numbers are read from. Nothing here imports torch.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema

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
    """Settings are frozen; unknown keys are errors. The string below a field is its description."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    example: ClassVar[Mapping[str, Any]] = {}
    """What a scenario that tries the component out needs beside its name: dotted key -> value."""

    small: ClassVar[Mapping[str, Any]] = {}
    """Own fields with which the component does in few rounds of few devices what it is for."""

    reads: ClassVar[tuple[str, ...]] = ()
    """Fields that name a file which results depend on."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Make descriptions, which docstrings break into lines, one line each."""
        for info in cls.model_fields.values():
            if info.description is not None:
                info.description = " ".join(info.description.split())
        return handler(source)

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
        need not.
        """
        return ""

    def made(self, *given: Any) -> Any:
        """Return the component of these settings, where they are it: themselves."""
        return self

    def notes(self, scenario: Any) -> Iterable[str]:
        """Return what is no error, but hardly meant, between these settings and the rest of the
        scenario; asked of the sections `algorithm`, `transport` and `topology`.
        """
        return ()

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Return what is wrong between these settings and the rest of the scenario."""
        return ()

    def find_conflicts(self) -> Iterable[str]:
        """Return what is wrong between fields, in sentences, of which the first is told."""
        return ()

    @model_validator(mode="after")
    def _refuse_conflicts(self) -> Self:
        for text in self.find_conflicts():
            raise ValueError(text)
        return self


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
    each with that choice.
    """
    for name, info in settings.model_fields.items():
        yield from ((name, mark) for mark in info.metadata if isinstance(mark, Reveals))
