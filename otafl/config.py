"""The base of every configuration class, and the mark of fields that trials of a stack may differ
in.

A configuration is at once the YAML schema of a component, its documentation and the only place
its settings are read from. Nothing here, nor in any `config.py`, imports torch.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Config(BaseModel):
    """Frozen; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def stackable(default: Any = ..., **constraints: Any) -> Any:
    """A numeric field that changes neither a tensor's shape nor the flow of control: points of a
    sweep that differ in it alone run in one batched program."""
    return Field(default, json_schema_extra={"stackable": True}, **constraints)


def stackable_fields(config: type[BaseModel]) -> tuple[str, ...]:
    """The names of a configuration class's stackable fields."""
    return tuple(
        name
        for name, info in config.model_fields.items()
        if isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("stackable")
    )


def stackable_keys(config: BaseModel) -> tuple[str, ...]:
    """The names of a section's stackable fields; a component of the user's own may have some that
    its class does not."""
    own: tuple[str, ...] | None = getattr(config, "stackable_keys", None)
    return stackable_fields(type(config)) if own is None else own


class CustomConfig(Config):
    """A component of the user's own, named `module:callable`; every other key of its section is
    passed to the callable as a keyword argument."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})
