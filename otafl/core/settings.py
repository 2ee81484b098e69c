"""Describe settings, and mark the fields in which trials of a stack may differ.

Settings are at once the YAML schema of a component or section, its documentation and the only place
that its numbers are read from. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from otafl.core.problems import Problem

Decibels = Annotated[float, Field(ge=-1000, le=1000)]
"""A level in dB, dBm or dBi: 10^100 to one either way is more than any radio has, and float64 still
computes with it."""


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

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Return what is wrong between these settings and the rest of the scenario."""
        return ()


class CustomSettings(Settings):
    """Settings of a component of the user's are named `module:callable`.

    Every other key of the section is passed to the callable as a keyword argument.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    decides: ClassVar[bool] = True
    """Results depend on it."""

    name: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")

    @property
    def options(self) -> dict[str, Any]:
        """Return the keys of the section that are the callable's."""
        return dict(self.model_extra or {})

    def found(self) -> Any:
        """Import what the section names, and return it. Raises UserError where it cannot be had, or
        does not take the section's keys."""
        raise NotImplementedError


def stackable(default: Any = ..., **constraints: Any) -> Any:
    """Declare a numeric field that changes neither a tensor's shape nor the flow of control: points
    of a sweep that differ in it alone run in one batched program."""
    return Field(default, json_schema_extra={"stackable": True}, **constraints)


def stackable_fields(settings: type[BaseModel]) -> tuple[str, ...]:
    """List the stackable fields of a settings class."""
    return tuple(
        name
        for name, info in settings.model_fields.items()
        if isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("stackable")
    )
