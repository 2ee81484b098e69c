"""Identity of scenarios, by a hash of everything that results depend on.

The module also lists the user-defined files that a scenario names, and the common key of points
that share a stack.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from otafl.core.settings import Settings
from otafl.scenario.keys import (
    CHOICES,
    flatten,
    format_path,
    iterate_custom_sections,
    iterate_sections,
    set_value,
    split,
)
from otafl.scenario.reading import INPUT_FILES
from otafl.scenario.schema import Scenario
from otafl.scenario.writing import to_tree, to_yaml
from otafl.scenario.yaml_source import parse
from otafl.user_code import loading, sources
from otafl.user_code.sources import Sources

NO_RESULT = re.compile(r"name$|track\b|output\.folder$|engine\.(?!dtype)")
"""Keys that no result depends on."""


def compute_scenario_hash(scenario: Scenario) -> str:
    """Return the SHA-256 of everything that the results depend on.

    It is that of the filled-in scenario as JSON with sorted keys. Name, folder, tracker and engine
    do not count, except the precision. The order of the axes counts: it is that of the dims.
    Of a file or folder that a section names its own name counts, not where it lies.
    """
    tree = {key: value for key, value in to_tree(scenario).items() if key not in ("name", "track")}
    for path, section in iterate_sections(scenario):
        for key, named in _iterate_files(section):
            tree = set_value(tree, (*path, key), Path(named).name)
    if folder := get_data_folder(scenario):
        tree = set_value(tree, ("data", "dataset"), Path(folder).name)
    tree["output"] = {key: value for key, value in tree["output"].items() if key != "folder"}
    tree["engine"] = {"dtype": scenario.engine.dtype}
    tree["sweep"] = [
        (key, [_fill_in(key, value) for value in values]) for key, values in scenario.sweep.items()
    ]
    return _hash_tree(tree)


def get_data_folder(scenario: Scenario) -> str:
    """Return the folder of the data set; an empty text if it is none that the user names."""
    if "dataset" not in type(scenario.data).model_fields:
        return ""
    named = str(getattr(scenario.data, "dataset", ""))
    return named if Path(named).is_absolute() else ""


def describe_scenario(scenario: Scenario) -> dict[str, str]:
    """Return the attributes of a file that identify its scenario."""
    return {"scenario": to_yaml(scenario), "scenario_hash": compute_scenario_hash(scenario)}


def restore_tree(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scenario in a file, as a mapping for `load_scenario`.

    Parameters
    ----------
    stored : mapping
        The `scenario` and its `compute_scenario_hash`, see `describe_scenario`.
    """
    return dict(parse(str(stored["scenario"])).data)


def list_differences(stored: Mapping[str, Any], scenario: Scenario) -> list[str]:
    """List the keys that differ between a stored scenario and another, and that results depend on.

    Keys that only one of them has are left out, except axes.

    Parameters
    ----------
    stored : mapping
        The `scenario` and its `compute_scenario_hash`, see `describe_scenario`.
    scenario : Scenario
        The other scenario.
    """
    before = dict(flatten(restore_tree(stored)))
    now = dict(flatten(parse(to_yaml(scenario)).data))
    axes = {key for key in before.keys() ^ now.keys() if key.startswith("sweep.")}
    return [
        key
        for key in dict.fromkeys((*now, *before))
        if key in axes or (before.get(key) != now.get(key) and key in before and key in now)
        if not NO_RESULT.match(key)
    ]


def hash_custom_sources(scenario: Scenario) -> Sources:
    """Return the files of user-defined modules that results depend on, and their hashes.

    Raises UserError if a named module cannot be imported.
    """
    found: Sources = {}
    for path, section in iterate_custom_sections(scenario):
        own = loading.hash_sources(section.name, f"{format_path(path)}.name")
        found |= own if section.affects_results else {}
    return found


def hash_named_files(scenario: Scenario) -> dict[str, str]:
    """Return the files that a scenario names and its results depend on, and their hashes.

    Files are named without their folders, unless two have the same name.
    """
    sections = (section for _, section in iterate_sections(scenario))
    names = {file: Path(file).name for section in sections for _, file in _iterate_files(section)}
    counts = Counter(names.values())
    return {
        path if counts[name] > 1 else name: sources.hash_file(path) for path, name in names.items()
    }


def _iterate_files(section: Settings) -> Iterator[tuple[str, str]]:
    """Yield each key of a section that names a file, and the file."""
    for key in INPUT_FILES:
        if key in type(section).model_fields and getattr(section, key):
            yield key, getattr(section, key)


def make_stack_key(scenario: Scenario) -> str:
    """Return the common key of points that can run in one stack.

    Such points differ only in stackable fields.
    """
    outside = {"name", "trials", "seed", "sweep", "engine", "output", "track"}
    return _hash_tree(extract_structure(scenario, outside))


def _fill_in(key: str, value: Any) -> Any:
    """Return a value of an axis with the defaults of the section that it replaces."""
    if key == "zip":
        return {own: _fill_in(own, one) for own, one in value.items()}
    choice = CHOICES.get(split(key))
    section = value if choice is None else choice.validate(value)
    return section.model_dump(mode="json") if isinstance(section, Settings) else section


def extract_structure(settings: Any, outside: Set[str] = frozenset()) -> Any:
    """Return the settings that require a separate stack, as plain data, except these keys.

    Of a stackable number only counts whether it is given.
    """
    if isinstance(settings, Settings):
        every = vars(settings) | (settings.model_extra or {})
        names = settings.stackable_names
        numbers = {**vars(settings.values), **settings.implied_settings} if names else {}
        structure = {name: extract_structure(value) for name, value in every.items()}
        structure |= {name: None for name in names if numbers.get(name) is None}
        together = {name for name in names if numbers.get(name) is not None}
        return {name: value for name, value in structure.items() if name not in together | outside}
    if isinstance(settings, list | tuple):
        return [extract_structure(item) for item in settings]
    return settings


def _hash_tree(tree: Any) -> str:
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
