"""Describe settings, and mark the fields in which trials of a stack may differ.

Settings are at once the YAML schema of a component or section, its documentation and the only place
that its numbers are read from. Nothing here imports torch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

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
