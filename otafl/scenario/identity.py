"""Tell whether two scenarios are the same: by a hash of all that results depend on.

And which files of the user's own they name, and the key that points have in common which share a
stack.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Set
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from otafl.core import custom, sources
from otafl.core.choices import Choice, of_field
from otafl.core.errors import UserError
from otafl.core.registry import TABLES
from otafl.core.settings import Settings
from otafl.core.sources import Sources
from otafl.scenario.keys import custom_sections, dotted, sections
from otafl.scenario.schema import Scenario
from otafl.scenario.writing import to_yaml
from otafl.scenario.yaml_source import parse


def scenario_hash(scenario: Scenario) -> str:
    """Return the SHA-256 of all that the results depend on: not the name, the folder, who tracks it
    nor, but for the precision, the engine.

    A key that stands at the default that it was introduced with, or says what holds without it, is
    left out, so a scenario keeps its hash when a key is added. A default that changes says the
    first one: `Field(2.0, json_schema_extra={"introduced": 1.0})`.
    """
    tree = _set(scenario)
    tree.pop("name")
    tree.pop("track", None)
    output = tree.pop("output", {})
    output.pop("folder", None)
    tree |= {"output": output} if output else {}
    tree["engine"] = {"dtype": scenario.engine.dtype}
    tree["sweep"] = list(scenario.sweep.items())  # the order of the axes is the order of the dims
    return _digest(tree)


def about(scenario: Scenario) -> dict[str, str]:
    """Return what a file says of the scenario that it is of, see `same`."""
    return {"scenario": to_yaml(scenario), "scenario_hash": scenario_hash(scenario)}


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two files are of one scenario.

    They are by the `scenario_hash` that they have, or, where one was written by another version of
    otafl that reckoned it differently, by the `scenario` that they hold as YAML.
    """
    if one["scenario_hash"] == other["scenario_hash"]:
        return True
    return _hash_of(one.get("scenario", "")) == _hash_of(other.get("scenario", "")) != ""


def sources_of(scenario: Scenario) -> Sources:
    """Return the files of the user's own modules that a scenario's results depend on, and their
    hashes. Raises UserError where one that it names cannot be imported."""
    found: Sources = {}
    for path, section in custom_sections(scenario):
        own = custom.source(section.name, f"{dotted(path)}.name")
        found |= own if section.decides else {}
    return found


def files_of(scenario: Scenario) -> dict[str, str]:
    """Return the files that a scenario names and its results depend on, and their hashes."""
    named = (
        getattr(section, field) for _, section in sections(scenario) for field in section.reads
    )
    return {path: sources.of_file(path) for path in named if path}


def stack_key(scenario: Scenario) -> str:
    """Return what points that can run in one stack have in common: they differ in stackable fields
    alone."""
    outside = {"name", "trials", "seed", "sweep", "engine", "output", "track"}
    return _digest(structure(scenario, outside))


@functools.cache
def _hash_of(text: str) -> str:
    """Return the hash of a scenario as YAML; empty where it is none."""
    try:
        return scenario_hash(Scenario.model_validate(parse(text).data))
    except (UserError, ValidationError):
        return ""


def _set(settings: Settings, default: str = "") -> dict[str, Any]:
    """Return the keys that are not at the default they were introduced with, as plain data.

    default: the name that a section has if it gives none.
    """
    plain = settings.model_dump(mode="json")
    tree = {}
    for key, value in settings:
        info = type(settings).model_fields.get(key)
        if info is None:  # of the user's own component
            tree[key] = plain[key]
        elif key == "name":
            tree |= {} if value == default else {key: value}
        elif value != _introduced(info, plain) and value != settings.implied.get(key):
            choice = of_field(info)
            name = TABLES[choice.table].default if isinstance(choice, Choice) else ""
            own = _set(value, name) if isinstance(value, Settings) else plain[key]
            if own or not isinstance(value, Settings):
                tree[key] = own
    return tree


def _introduced(info: FieldInfo, section: dict[str, Any]) -> Any:
    extra = info.json_schema_extra
    if isinstance(extra, dict) and "introduced" in extra:
        return extra["introduced"]
    return info.get_default(call_default_factory=True, validated_data=section)


def structure(settings: Any, outside: Set[str] = frozenset()) -> Any:
    """Return what of settings forces a stack of its own, as plain data; but for these keys."""
    if isinstance(settings, Settings):
        skip = {*settings.stackable, *outside}
        own = {name: value for name, value in settings if name not in skip}
        return {name: structure(value) for name, value in own.items()}
    if isinstance(settings, list | tuple):
        return [structure(item) for item in settings]
    return settings


def _digest(tree: Any) -> str:
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
