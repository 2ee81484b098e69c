"""Identity of scenarios, by a hash of everything that results depend on.

The module also lists the user-defined files that a scenario names, and the common key of points
that share a stack.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from otafl.core.choices import Choice, get_choice
from otafl.core.errors import UserError
from otafl.core.settings import Settings, list_former_defaults
from otafl.scenario.axes import list_chosen_sections
from otafl.scenario.kept import Kept
from otafl.scenario.keys import (
    CHOICES,
    format_path,
    get_value,
    iterate_custom_sections,
    iterate_sections,
    set_value,
)
from otafl.scenario.renamed_keys import TO_FORMER, TO_PRESENT
from otafl.scenario.schema import Scenario
from otafl.scenario.writing import to_yaml
from otafl.scenario.yaml_source import parse
from otafl.user_code import loading, sources
from otafl.user_code.sources import Sources

Change = Callable[[type[BaseModel], dict[str, Any]], dict[str, Any]]
"""Function that changes a component's section, given its settings class."""

NO_RESULT = re.compile(r"name$|track\b|output\.folder$|output\.labels\b|engine\.(?!dtype)")
"""Keys that no result depends on."""

_hashes: Kept[str] = Kept()
_texts: Kept[str] = Kept()


def compute_scenario_hash(scenario: Scenario, former: bool = False) -> str:
    """Return the SHA-256 of everything that the results depend on.

    Name, folder, labels, tracker and engine do not count, except the precision. A key with the
    default that it was introduced with, or with the implied value, is left out, so a scenario keeps
    its hash when a key is added. A changed default names the first one: `Field(2.0,
    json_schema_extra={"introduced": 1.0})`. The same applies to the components that an axis
    chooses. The hash contains their keys that are not given and whose default has changed, and
    leaves out those given at their first default. Keys beside a swept name count if they are given.

    former: read the components of an axis as before defaults changed: keys that are not given have
    the first default.
    """
    if not former and (kept := _hashes.get(scenario)):
        return kept
    tree = _get_non_default_keys(scenario)
    tree.pop("name")
    tree.pop("track", None)
    output = tree.pop("output", {})
    for key in ("folder", "labels"):
        output.pop(key, None)
    tree |= {"output": output} if output else {}
    tree["engine"] = {"dtype": scenario.engine.dtype}
    tree["sweep"] = dict(_normalise_axis(key, v, former) for key, v in scenario.sweep.items())
    tree, _ = TO_FORMER.rename_tree(tree)
    tree["sweep"] = list(tree["sweep"].items())  # the order of the axes is the order of the dims
    for path, keeps in list_chosen_sections(scenario.sweep).items():
        section = get_value(scenario.model_dump(mode="json", exclude_unset=True), path)
        if keeps and isinstance(section, Mapping) and section.keys() - {"name"}:
            tree[f"{format_path(path)} kept"] = section
    return _hash_tree(tree) if former else _hashes.keep(scenario, _hash_tree(tree))


def describe_scenario(scenario: Scenario) -> dict[str, str]:
    """Return the attributes of a file that identify its scenario, see `is_same`."""
    text = _texts.get(scenario) or _texts.keep(scenario, to_yaml(scenario))
    return {"scenario": text, "scenario_hash": compute_scenario_hash(scenario)}


def is_same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether two files have the same scenario.

    They do if their `compute_scenario_hash` is equal. Another version of otafl may have computed
    the hash differently; then the `scenario` that they contain as YAML decides.
    """
    if first["scenario_hash"] == second["scenario_hash"]:
        return True
    return _hash_stored(first) == _hash_stored(second) != ""


def restore_tree(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scenario in a file, as a mapping for `load_scenario`.

    If a default changed after the file was written, the components of an axis get the first default
    of each key that the file does not give. Keys that the values of an axis replace are left out:
    earlier versions stored all of them, and a swept name replaced them too.

    Parameters
    ----------
    stored : mapping
        The `scenario` and its `compute_scenario_hash`, see `describe_scenario`.
    """
    text, digest = str(stored["scenario"]), str(stored["scenario_hash"])
    tree = read_stored(text)
    is_older = digest != _hash_text(text, False)
    for path, keeps in list_chosen_sections(tree.get("sweep")).items():
        section = get_value(tree, path)
        if isinstance(section, Mapping) and (is_older or not keeps):
            tree = set_value(tree, path, {"name": section["name"]})
    if _is_former(text, digest):
        tree["sweep"] = {
            key: [_fill_in(key, value) for value in values] for key, values in tree["sweep"].items()
        }
    return tree


def read_stored(text: str) -> dict[str, Any]:
    """Return a stored scenario, given as YAML, as a mapping under present names."""
    tree = parse(text).data
    return TO_PRESENT.rename_tree(tree)[0] if isinstance(tree, dict) else tree


def list_differences(stored: Mapping[str, Any], scenario: Scenario) -> list[str]:
    """List the keys that differ between a stored scenario and another, and that results depend on.

    Keys that only one of them has are left out. A section counts as one key if the scenarios choose
    different components for it.

    Parameters
    ----------
    stored : mapping
        The `scenario` and its `compute_scenario_hash`, see `describe_scenario`.
    scenario : Scenario
        The other scenario.
    """
    before, now = restore_tree(stored), parse(to_yaml(scenario)).data
    for tree in (before, now):
        tree.setdefault("sweep", {})
    return [key for key in _differences(before, now) if not NO_RESULT.match(key)]


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], above: str = "") -> list[str]:
    found = []
    for key in [key for key in now if key in before]:
        one, other = before[key], now[key]
        sections = isinstance(one, Mapping) and isinstance(other, Mapping) and key != "sweep"
        if sections and one.get("name") == other.get("name"):
            found += _differences(one, other, f"{above}{key}.")
        elif one != other:
            found.append(f"{above}{key}")
    return found


def hash_custom_sources(scenario: Scenario) -> Sources:
    """Return the files of user-defined modules that results depend on, and their hashes.

    Files of weights that a model starts from are among them.

    Raises UserError if a named module cannot be imported.
    """
    found: Sources = {}
    for path, section in iterate_custom_sections(scenario):
        own = loading.hash_sources(section.name, f"{format_path(path)}.name")
        found |= own if section.affects_results else {}
    return found | _hash_files(scenario, lambda section: section.begins_again)


def hash_named_files(scenario: Scenario) -> dict[str, str]:
    """Return the files that a scenario names and its results depend on, and their hashes."""
    return _hash_files(scenario, lambda section: True)


def _hash_files(scenario: Scenario, fits: Callable[[Settings], bool]) -> dict[str, str]:
    """Return the files that the fitting sections name, and their hashes."""
    named = (
        getattr(section, field)
        for _, section in iterate_sections(scenario)
        for field in section.reads
        if fits(section)
    )
    return {path: sources.hash_file(path) for path in named if path}


def make_stack_key(scenario: Scenario) -> str:
    """Return the common key of points that can run in one stack.

    Such points differ only in stackable fields.
    """
    outside = {"name", "trials", "seed", "sweep", "engine", "output", "track"}
    return _hash_tree(extract_structure(scenario, outside))


def _hash_stored(stored: Mapping[str, Any]) -> str:
    """Return the hash of the scenario in a file; empty without one."""
    text = str(stored.get("scenario", ""))
    return _hash_text(text, _is_former(text, str(stored["scenario_hash"])))


def _is_former(text: str, digest: str) -> bool:
    """Return whether a file dates from before a change of a default that its axes depend on."""
    now = _hash_text(text, False)
    return digest != now != _hash_text(text, True)


@functools.cache
def _hash_text(text: str, former: bool) -> str:
    """Return the hash of a scenario as YAML; empty if the text is no scenario."""
    try:
        return compute_scenario_hash(Scenario.model_validate(read_stored(text)), former)
    except (UserError, ValidationError):
        return ""


def _normalise_axis(key: str, values: Sequence[Any], former: bool) -> tuple[str, list[Any]]:
    """Return an axis of the sweep with its components as the hash includes them."""
    return key, [_apply(key, value, functools.partial(_normalise, former)) for value in values]


def _fill_in(key: str, value: Any) -> Any:
    """Return a value of an axis with the first defaults of the keys that its choices lack."""
    return _apply(key, value, lambda kind, section: list_former_defaults(kind) | section)


def _normalise(former: bool, kind: type[BaseModel], section: dict[str, Any]) -> dict[str, Any]:
    """Return a section of an axis without keys at their first default.

    Unless it is `former`, keys that it does not give get their present default.
    """
    first = list_former_defaults(kind)
    given = {key: value for key, value in section.items() if first.get(key, ...) != value}
    if former:
        return given
    lacking = (key for key in first if key not in section)
    return given | {key: kind.model_fields[key].default for key in lacking}


def _apply(key: str, value: Any, change: Change) -> Any:
    """Return a value of an axis with `change` made to each chosen component with a changed default.

    Other values stay as they are.
    """
    if key == "zip":
        return {own: _apply(own, one, change) for own, one in value.items()}
    path = tuple(key.removesuffix(".name").split("."))
    choice = CHOICES.get(path)
    kind = None if choice is None else choice.find_settings_class(value)
    if choice is None or kind is None or not list_former_defaults(kind):
        return value
    changed = change(kind, dict(choice.normalise(value)))
    return value if isinstance(value, str) and len(changed) == 1 else changed


def _get_non_default_keys(settings: Settings, default: str = "") -> dict[str, Any]:
    """Return the keys that are not at the default they were introduced with, as plain data.

    default: the name of a section that gives none.
    """
    plain = settings.model_dump(mode="json")
    tree = {}
    for key, value in settings:
        info = type(settings).model_fields.get(key)
        if info is None:  # of a user-defined component
            tree[key] = plain[key]
        elif key == "name":
            tree |= {} if value == default else {key: value}
        elif _has_changed_default(value) or (
            value != _get_first_default(info, plain) and value != settings.implied_settings.get(key)
        ):
            choice = get_choice(info)
            name = ""
            if isinstance(choice, Choice) and not choice.chosen_by:
                name = choice.default_name
            own = _get_non_default_keys(value, name) if isinstance(value, Settings) else plain[key]
            if own or not isinstance(value, Settings):
                tree[key] = own
    return tree


def _has_changed_default(value: Any) -> bool:
    """Return whether a section at its defaults differs from one at its first defaults."""
    return isinstance(value, Settings) and bool(list_former_defaults(type(value)))


def _get_first_default(info: FieldInfo, section: dict[str, Any]) -> Any:
    extra = info.json_schema_extra
    if isinstance(extra, dict) and "introduced" in extra:
        return extra["introduced"]
    return info.get_default(call_default_factory=True, validated_data=section)


def extract_structure(settings: Any, outside: Set[str] = frozenset()) -> Any:
    """Return the settings that require a separate stack, as plain data, except these keys.

    Of a stackable number only counts whether it is given, unless numbers mix with null.
    """
    if isinstance(settings, Settings):
        every = vars(settings) | (settings.model_extra or {})
        skip, apart = {*settings.stackable_names, *outside}, settings.numbers_apart_from_null
        structure = {
            name: extract_structure(value) for name, value in every.items() if name not in skip
        }
        return structure | {name: None for name in apart if every.get(name) is None}
    if isinstance(settings, list | tuple):
        return [extract_structure(item) for item in settings]
    return settings


def _hash_tree(tree: Any) -> str:
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
