"""Sections of a scenario that choose a component from a table of `otafl.core.registry`.

The class of their settings is imported when a value is validated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from otafl.core import registry
from otafl.core.settings import Settings

UNKNOWN = "unknown_choice"
NO_SECTION = "no_section"
"""Types of the errors that this module raises."""


@dataclass(frozen=True)
class Choice:
    """A section that chooses a component by its `name`.

    A text stands for `{name: text}`. A section without a name has the default, by default that of
    the table. chosen_by: another section of the same settings, whose attribute of the table's name
    is the default, as the data set's `loss`. words: texts that stand for themselves, beside the
    components; the first one is the default.
    """

    table: str
    default: str = ""
    chosen_by: str = ""
    words: tuple[str, ...] = ()

    @property
    def default_name(self) -> str:
        """The component of a section without a name, if no other section chooses it."""
        return self.default or registry.TABLES[self.table].default

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.validate)

    def validate(self, value: Any) -> Any:
        if isinstance(value, Settings) or (isinstance(value, str) and value in self.words):
            return value
        section = self.normalise(value)
        if not isinstance(section, Mapping):
            raise PydanticCustomError(NO_SECTION, "neither a name nor a mapping")
        kind = self.find_settings_class(section)
        if kind is None:
            raise PydanticCustomError(UNKNOWN, "no component of the table")
        return kind.model_validate(section)

    def make_default(self) -> Any:
        """Return the settings of a section that is not given."""
        if self.words:
            return self.words[0]
        return registry.load_settings_class(self.table, self.default_name)()

    def make_chosen(self, validated: Mapping[str, Any]) -> Settings:
        """Return the settings of a section that is not given, as another section chooses them.

        validated: the other sections, as settings or as plain data.
        """
        section = validated.get(self.chosen_by)
        if isinstance(section, Mapping):
            section = registry.load_settings_class(self.chosen_by, section["name"])
        name = getattr(section, f"default_{self.table}", "") or self.default_name
        return registry.load_settings_class(self.table, name)()

    def normalise(self, value: Any) -> Any:
        """Return the value as a mapping with its `name`; other types stay unchanged."""
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, Mapping) and "name" not in value:
            return {"name": self.default_name, **value}
        return value

    def find_settings_class(self, section: Any) -> type[Settings] | None:
        """Return the settings class that a section chooses; None if there is no such component."""
        section = self.normalise({} if section is None else section)
        name = section.get("name") if isinstance(section, Mapping) else None
        if not isinstance(name, str):
            return None
        table = registry.TABLES[self.table]
        custom = table.supports_custom and ":" in name
        if not custom and name not in table.modules:
            return None
        return registry.load_settings_class(self.table, name)

    def load_all_settings_classes(self) -> dict[str, type[Settings]]:
        """Return the settings class of every component of the table."""
        return {
            name: registry.load_settings_class(self.table, name)
            for name in registry.list_names(self.table)
        }

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        table, every = registry.TABLES[self.table], self.load_all_settings_classes()
        kinds = list(dict.fromkeys(every.values()))
        alone: list[JsonSchemaValue] = [{"enum": [*self.words, *every]}]
        if table.supports_custom:
            alone.append({"type": "string", "pattern": ":"})
            kinds.append(registry.load_settings_class(self.table, ":"))
        sections = []
        for kind in kinds:
            section = handler(kind.__pydantic_core_schema__)
            names = [name for name, one in every.items() if one is kind]
            section["title"] = " ".join(names) or "module:callable"
            if names:
                section["description"] = registry.read_info(self.table, names[0]).summary
            if names != [self.default_name]:
                section["required"] = ["name", *section.get("required", ())]
            sections.append(section)
        default = self.make_default()
        default = default if self.words else default.model_dump(mode="json")
        return {"anyOf": [*alone, {"oneOf": sections}], "default": default}


def declare_choice(
    table: str,
    description: str,
    default: str = "",
    chosen_by: str = "",
    words: tuple[str, ...] = (),
) -> Any:
    """Declare a field that chooses from a table, of the type Any; see `Choice`."""
    choice = Choice(table, default, chosen_by, words)
    make: Callable[..., Any] = choice.make_chosen if chosen_by else choice.make_default
    info: Any = Field(default_factory=make, description=description)
    info.metadata.append(choice)
    return info


def get_choice(field: Any) -> Choice | None:
    """Return the choice of a pydantic field, or None."""
    return next((one for one in field.metadata if isinstance(one, Choice)), None)
