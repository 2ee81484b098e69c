"""A scenario as text: YAML that reads back, the JSON schema, and an example of each component."""

from __future__ import annotations

from typing import Any

import yaml

from otafl.core import registry
from otafl.core.choices import get_choice
from otafl.core.presets import list_presets
from otafl.core.settings import get_description
from otafl.scenario.axes import NOT_SWEPT, list_chosen_sections
from otafl.scenario.keys import format_path, get_value, iterate_fields, iterate_sections, set_value
from otafl.scenario.reading import EXTENDS
from otafl.scenario.schema import Scenario
from otafl.scenario.yaml_source import dump


def to_yaml(scenario: Scenario) -> str:
    """Return the scenario with all defaults filled in, as YAML that `load_scenario` reads back."""
    return dump(to_tree(scenario))


def format_settings(scenario: Scenario, full: bool = False) -> str:
    """Return the keys that were set as YAML that reads back; all keys if full."""
    given = scenario.model_dump(mode="json", exclude_unset=True)
    return to_yaml(scenario) if full else dump(name_first(given))


def to_tree(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario with all defaults filled in, as plain data that `load_scenario` reads.

    Implied values of a section are filled in if no axis sets a key of it. A section whose component
    is swept has only the keys that were given: the defaults of each component differ.
    """
    tree = scenario.model_dump(mode="json")
    axes = [key for row in (scenario.sweep, *scenario.sweep.get("zip", ())) for key in row]
    for path, section in iterate_sections(scenario):
        if not any(axis.startswith(format_path(path)) for axis in axes):
            of = get_value(tree, path)
            of.update(
                {key: one for key, one in section.implied_settings.items() if of[key] is None}
            )
    for key, info in type(scenario).model_fields.items():
        choice = get_choice(info)
        chosen_by = choice.chosen_by if choice else ""
        swept = chosen_by and any(axis.split(".")[0] == chosen_by for axis in axes)
        if swept and key not in scenario.model_fields_set:
            tree.pop(key)  # every point has its own
    given = scenario.model_dump(mode="json", exclude_unset=True)
    for path in list_chosen_sections(scenario.sweep):
        if (section := get_value(tree, path)) is not None:
            own = {"name": section["name"]} | (get_value(given, path) or {})
            tree = set_value(tree, path, own)
    tree = name_first(tree)
    if not scenario.sweep:
        tree.pop("sweep")
    return tree


def build_json_schema() -> dict[str, Any]:
    """Return the JSON schema of a scenario, for editors.

    `stackable: true` marks the numbers whose sweep costs least.
    """
    schema = Scenario.model_json_schema()
    axes = {
        name: {"type": "array", "minItems": 1, "description": get_description(field)}
        for name, field in iterate_fields(Scenario)
        if name.partition(".")[0] not in NOT_SWEPT
    }
    rows = {"type": "array", "minItems": 1, "items": {"type": "object", "minProperties": 1}}
    properties = {
        EXTENDS: {
            "description": "preset, or YAML file, that the scenario starts from",
            "anyOf": [{"enum": list(list_presets())}, {"type": "string", "pattern": r"\.ya?ml$|/"}],
        },
        **schema["properties"],
        "sweep": schema["properties"]["sweep"] | {"properties": axes | {"zip": rows}},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "properties": properties,
    }


def name_first(tree: Any) -> Any:
    """Return a tree in which the key `name` is the first of each mapping."""
    if isinstance(tree, dict):
        first = {"name": tree["name"]} if "name" in tree else {}
        return {key: name_first(value) for key, value in (first | tree).items()}
    return tree


ORDER = ("data", "model", "algorithm", "channel", "csi", "receiver", "power", "codec", "transport")


def build_example(table: str, name: str) -> dict[str, Any]:
    """Return the keys of a small scenario that uses a component; other keys have their defaults."""
    tree: dict[str, Any] = {"name": f"{table}_{name}"}
    chosen = {f"{registry.TABLES[table].section}.name": name}
    for key, value in (chosen | dict(registry.load_settings_class(table, name).example)).items():
        tree = set_value(tree, tuple(key.split(".")), value)
    tree = name_first(tree)
    rank = {section: place for place, section in enumerate(("name", *ORDER))}
    return dict(sorted(tree.items(), key=lambda item: rank.get(item[0], len(rank))))


def format_example(table: str, name: str) -> str:
    """Return the scenario of `build_example` as YAML."""
    return str(yaml.safe_dump(build_example(table, name), sort_keys=False))
