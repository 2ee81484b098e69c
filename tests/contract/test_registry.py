"""Every entry of every table can be had, fits its settings, and costs nothing before it is asked
for."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from otafl.core import custom, registry
from otafl.core.errors import UserError
from otafl.core.settings import Settings, stackable_fields
from otafl.results import variables
from otafl.scenario import Scenario, json_schema, load_scenario
from otafl.scenario.axes import NOT_SWEPT, coordinates, read
from otafl.scenario.keys import CHOICES, DEFAULTS, fields

ENTRIES = [(table, name) for table in registry.TABLES for name in registry.names(table)]


@pytest.mark.parametrize(("table", "name"), ENTRIES)
def test_an_entry_has_settings_an_implementation_and_one_line(table: str, name: str) -> None:
    entry = registry.TABLES[table][name]
    config = registry.settings(table, name)
    assert entry.name == name
    assert issubclass(config, Settings)
    assert get_args(config.model_fields["name"].annotation) == (name,)
    assert config.__doc__
    assert callable(registry.component(table, name))
    assert entry.summary
    assert "\n" not in entry.summary


@pytest.mark.parametrize(("table", "name"), ENTRIES)
def test_every_field_of_an_entry_says_what_it_means(table: str, name: str) -> None:
    for key, info in registry.settings(table, name).model_fields.items():
        assert info.description or key in ("name", "partition"), key


def test_every_table_is_a_section_with_a_default() -> None:
    assert set(CHOICES.values()) == set(registry.TABLES) == set(DEFAULTS)
    scenario = load_scenario({"name": "x"})
    for path, table in CHOICES.items():
        section = scenario
        for part in path:
            section = getattr(section, str(part))
        assert section == registry.settings(table, DEFAULTS[table])()


INCOMPLETE = (
    ("availability", "trace"),
    ("compute", "classes"),
    ("compute", "csv"),
    ("frequency", "deadline"),
    ("frequency", "joint"),
    ("channel", "trace"),
    ("levels", "memory"),
    ("levels", "deadline"),
)
"""What a name alone does not say enough of."""


@pytest.mark.parametrize(
    ("table", "name"),
    [one for one in ENTRIES if one not in INCOMPLETE],
)
def test_an_entry_can_be_named_alone_or_in_a_mapping(table: str, name: str) -> None:
    path = next(path for path, one in CHOICES.items() if one == table)
    for section in (name, {"name": name}):
        tree = section
        for part in reversed(path):
            tree = {part: tree}
        method = {"algorithm": "heterofl"} if table == "levels" else {}
        found = load_scenario({"transport": "ideal", "name": "x", **method, **tree})
        for part in path:
            found = getattr(found, str(part))
        assert found == registry.settings(table, name)(name=name)


def test_no_key_gives_an_axis_the_name_of_something_else_in_a_result() -> None:
    keys = {key for key, _ in fields(Scenario) if key.split(".")[0] not in NOT_SWEPT}
    used = {*variables.VARIABLES, "trial", "round", "device", "point", "point_index", "final_round"}
    for key in keys:
        if key in ("data", "devices", "training"):
            continue
        sweep, problems = read({key: ["a"]}, Scenario, {})
        assert not used & set(coordinates(sweep, Scenario)), key
        assert all("is a section" in problem.message for problem in problems), problems


def test_the_schema_marks_stackable_fields_and_describes_entries() -> None:
    definitions = json_schema()["$defs"]
    for table, name in ENTRIES:
        config = registry.settings(table, name)
        schema = definitions[config.__name__]
        assert schema["description"]
        marked = {key for key, info in schema["properties"].items() if info.get("stackable")}
        assert marked == set(stackable_fields(config))


@pytest.mark.parametrize(
    ("word", "candidates", "found"),
    [
        ("gbam", ("full", "ci", "tci", "gbma"), "gbma"),
        ("treshold", ("name", "threshold"), "threshold"),
        ("xyz", ("name", "threshold"), None),
        ("a", (), None),
    ],
)
def test_closest(word: str, candidates: tuple[str, ...], found: str | None) -> None:
    assert registry.closest(word, candidates) == found


def test_an_unknown_name_is_refused_with_the_closest() -> None:
    with pytest.raises(UserError) as error:
        registry.component("power", "gbam")
    known = ", ".join(registry.names("power"))
    assert str(error.value) == (
        f"power: unknown power policy 'gbam'; did you mean 'gbma'? known: {known}, or "
        "module:callable of your own"
    )


def test_a_callable_of_the_users_own() -> None:
    assert (
        registry.component("model", "collections:OrderedDict")
        is __import__("collections").OrderedDict
    )
    assert registry.settings("model", "a:b").__name__ == "CustomModelConfig"
    assert registry.settings("data", "a:b").__name__ == "CustomDataConfig"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module:f", "data.name: 'no_such_module:f': No module named 'no_such_module'; is"),
        ("math:no", "data.name: 'math:no': 'no' does not exist in module 'math'"),
        ("math:pi", "data.name: 'math:pi': 'pi' is not callable in module 'math'"),
    ],
)
def test_a_callable_that_cannot_be_had(path: str, message: str) -> None:
    with pytest.raises(UserError, match=r"data\.name") as error:
        registry.component("data", path)
    assert str(error.value).startswith(message)


def test_a_callable_in_the_working_folder(tmp_path, monkeypatch) -> None:
    (tmp_path / "my_own_model_file.py").write_text("def make(**options): return options\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    make = custom.load("my_own_model_file:make", "model.name")
    assert make(a=1) == {"a": 1}


def _imports(code: str, *modules: str) -> str:
    loaded = "; ".join(f"print('{one}' in sys.modules)" for one in modules)
    command = [sys.executable, "-c", f"import sys; {code}; {loaded}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_names_are_listed_without_pydantic_or_torch() -> None:
    code = "import otafl.core.registry as r; [r.names(t) for t in r.TABLES]"
    assert _imports(code, "pydantic", "torch", "numpy").split() == ["False"] * 3


def test_a_scenario_is_read_without_torch() -> None:
    code = (
        "import otafl.scenario.schema as s; x = s.load_scenario({'name': 'x', 'sweep': {'seed': [1]}}); "
        "s.expand(x); s.to_yaml(x); s.json_schema()"
    )
    assert _imports(code, "torch", "xarray", "simpy").split() == ["False"] * 3
