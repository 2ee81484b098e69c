"""Every entry of every table can be had, fits its settings, and costs nothing before it is asked
for."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import Any, get_args

import pytest

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.settings import Settings, list_stackable_fields
from otafl.scenario import build_json_schema, load_scenario
from otafl.scenario.keys import CHOICES

ENTRIES = [(table, name) for table in registry.TABLES for name in registry.list_names(table)]


def test_an_entry_has_settings_an_implementation_and_descriptions() -> None:
    """The component is its settings, or a class that has them nested."""
    wrong = []
    for table, name in ENTRIES:
        kind, about = registry.load_component(table, name), registry.read_info(table, name)
        settings = registry.load_settings_class(table, name)
        fine = (
            issubclass(settings, Settings),
            settings is getattr(kind, "Settings", kind),
            name in get_args(settings.model_fields["name"].annotation),
            0 < len(about.summary) <= 96,
            "\n" not in about.summary,
        )
        wrong += [(table, name)] * (not all(fine))
        wrong += [
            (table, name, key)
            for key, info in settings.model_fields.items()
            if not info.description and key not in ("name", "partition")
        ]
    assert wrong == []


def test_every_table_is_a_section_with_a_default() -> None:
    assert {choice.table for choice in CHOICES.values()} == set(registry.TABLES)
    scenario = load_scenario({"name": "x"})
    for path, choice in CHOICES.items():
        section = scenario
        for part in path:
            section = getattr(section, str(part))
        default = registry.TABLES[choice.table].default
        assert section == registry.load_settings_class(choice.table, default)(name=default)


def test_the_schema_marks_stackable_fields_and_describes_entries() -> None:
    for table, name in ENTRIES:
        listed = section_of(registry.TABLES[table].path)["anyOf"][-1]["oneOf"]
        (own,) = (one for one in listed if name in one["title"].split())
        assert own["description"]
        properties = referred(own)["properties"]
        marked = {key for key, info in properties.items() if info.get("stackable")}
        assert marked == set(list_stackable_fields(registry.load_settings_class(table, name)))


@functools.cache
def schema() -> dict[str, Any]:
    return build_json_schema()


def referred(node: dict[str, Any]) -> dict[str, Any]:
    """A node of the schema, or the one that it refers to."""
    return schema()["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node


def section_of(path: tuple[str, ...]) -> dict[str, Any]:
    """What the schema says of a section; of one in a section that is chosen, in its first kind."""
    node = schema()
    for part in path:
        node = referred(node)
        if "anyOf" in node:
            node = referred(node["anyOf"][-1]["oneOf"][0])
        node = node["properties"][part]
    return node


def test_an_unknown_name_is_refused_with_the_closest() -> None:
    with pytest.raises(UserError) as error:
        registry.load_component("power", "gbam")
    known = ", ".join(registry.list_names("power"))
    assert str(error.value) == (
        f"power: unknown power policy 'gbam'; did you mean 'gbma'? known: {known}, or "
        "module:callable of your own"
    )


def _imports(code: str, *modules: str) -> str:
    loaded = "; ".join(f"print('{one}' in sys.modules)" for one in modules)
    command = [sys.executable, "-c", f"import sys\n{code}\n{loaded}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_command_line_lists_without_torch() -> None:
    code = (
        "from otafl import cli\ntry: cli.main(%r)\nexcept SystemExit as left: "
        "assert not left.code\nprint()"
    )
    said = _imports(code % ["list", "channel"], "torch", "sionna", "xarray", "simpy")
    assert said.split()[-4:] == ["False"] * 4
