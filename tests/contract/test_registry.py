"""Every entry of every table can be had, fits its settings, and costs nothing before it is asked
for."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.settings import Settings
from otafl.scenario import load_scenario
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


def test_a_message_says_what_kind_of_component_is_unknown() -> None:
    for table, noun in (
        ("cpu_frequency", "DVFS policy 'fulll'; did you mean 'full'"),
        ("capacity_levels", "assignment 'fulll'"),
    ):
        assert registry.format_unknown_name(table, "fulll").startswith(f"unknown {noun}")


def test_the_command_line_lists_without_torch() -> None:
    code = (
        "from otafl import cli\ntry: cli.main(%r)\nexcept SystemExit as left: "
        "assert not left.code\nprint()"
    )
    said = _imports(code % ["list", "channel"], "torch", "sionna", "xarray", "simpy")
    assert said.split()[-4:] == ["False"] * 4
