"""Settings of components and sections, and the fields in which trials of a stack may differ.

Settings are the YAML schema of a component or section, its documentation, and the only source of
its numbers. Nothing here imports torch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from otafl.core.problems import Problem

Decibels = Annotated[float, Field(ge=-300, le=300)]
"""A level in dB, dBm or dBi.

A factor of 10^30 in either direction is beyond any radio, and float32 can still compute with it.
"""

VOTES = "takes a vote of signs, along which the server steps"
"""Reason why signs must be those of increments."""


@dataclass(frozen=True)
class DataDisclosure:
    """A choice by which devices reveal data to the server that the noise does not cover.

    It is part of the metadata of a settings field, as in
    `Annotated[bool, DataDisclosure(True, False, "...")]`.

    Parameters
    ----------
    choice : Any
        Value of the field that reveals.
    instead : Any
        Value that does not.
    what : str
        The revealed data, as a noun phrase.
    """

    choice: Any
    instead: Any
    what: str


class Settings(BaseModel):
    """Frozen settings that refuse unknown keys. The string below a field is its description."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    example: ClassVar[Mapping[str, Any]] = {}
    """Keys that a scenario needs to try the component, besides its name: dotted key -> value."""

    small: ClassVar[Mapping[str, Any]] = {}
    """Own fields with which the component shows its purpose in a few rounds of few devices."""

    idle_without: ClassVar[Mapping[str, str]] = {}
    """Fields without effect while another field is off: field -> the other field."""

    takes_votes: ClassVar[bool] = False
    """Whether the server takes votes of signs, which have no size."""

    @property
    def stackable_names(self) -> tuple[str, ...]:
        """The fields over which trials of one stack may differ."""
        return list_stackable_fields(type(self))

    @property
    def values(self) -> Settings:
        """The settings themselves, or for a user-defined component those of its class."""
        return self

    @property
    def implied_settings(self) -> Mapping[str, Any]:
        """Values of keys that are not given and have no default of their own."""
        return {}

    @property
    def assumes_increments(self) -> str:
        """Reason why devices must send increments ("takes a vote of signs"), or an empty text."""
        return ""

    def build(self, *args: Any) -> Any:
        """Return the component of these settings, if they are it: themselves."""
        return self

    def list_notes(self, scenario: Any) -> Iterable[str]:
        """Return valid settings of this section and the scenario that are probably not intended.

        It is called for the sections `algorithm`, `transport`, `topology` and `channel`.
        """
        return ()

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Return conflicts between these settings and the rest of the scenario."""
        return ()

    def find_conflicts(self) -> Iterable[str]:
        """Return conflicts between fields as sentences; the first is reported."""
        return ()

    def is_default(self, key: str) -> bool:
        """Return whether a field has its default value, as in a stored scenario that names all."""
        return bool(getattr(self, key) == type(self).model_fields[key].default)

    def is_off(self, key: str) -> bool:
        """Return whether fields of `idle_without` that need this one have no effect."""
        return self.is_default(key)

    @model_validator(mode="after")
    def _refuse_conflicts(self) -> Self:
        for text in self.find_conflicts():
            raise ValueError(text)
        return self


def get_description(field: FieldInfo) -> str:
    """Return the description of a field on one line; empty if it has none."""
    return " ".join((field.description or "").split())


def declare_stackable(default: Any = ..., **constraints: Any) -> Any:
    """Declare a numeric field that changes neither a tensor's shape nor the flow of control.

    Points of a sweep that differ only in such fields run in one batched program. Points with null
    run in another one than points with numbers.

    Parameters
    ----------
    default : Any
        Default of the field; must be given if left out.
    **constraints : Any
        Constraints of pydantic's Field.
    """
    return Field(default, json_schema_extra={"stackable": True}, **constraints)


@functools.cache
def list_stackable_fields(settings: type[BaseModel]) -> tuple[str, ...]:
    """List the stackable fields of a settings class."""
    return tuple(
        name
        for name, info in settings.model_fields.items()
        if isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("stackable")
    )


def iterate_disclosures(settings: type[BaseModel]) -> Iterator[tuple[str, DataDisclosure]]:
    """Yield each field of a settings class with a choice that reveals data, and that choice."""
    for name, info in settings.model_fields.items():
        yield from ((name, mark) for mark in info.metadata if isinstance(mark, DataDisclosure))
