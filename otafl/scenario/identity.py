"""Tell whether two scenarios are the same: by a hash of all that results depend on.

And which files of the user's own they name, and the key that points have in common which share a
stack.
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

from otafl.core.choices import Choice, of_field
from otafl.core.errors import UserError
from otafl.core.registry import TABLES
from otafl.core.settings import Settings, list_former_defaults
from otafl.scenario.keys import CHOICES, custom_sections, dotted, sections
from otafl.scenario.schema import Scenario
from otafl.scenario.writing import to_yaml
from otafl.scenario.yaml_source import parse
from otafl.user_code import loading, sources
from otafl.user_code.sources import Sources

Change = Callable[[type[BaseModel], dict[str, Any]], dict[str, Any]]
"""Changes a component's section, given its settings class."""

NO_RESULT = re.compile(r"name$|track\b|output\.folder$|engine\.(?!dtype)")
"""Keys that no result depends on."""


def scenario_hash(scenario: Scenario, former: bool = False) -> str:
    """Return the SHA-256 of all that the results depend on: not the name, the folder, who tracks it
    nor, but for the precision, the engine.

    A key that stands at the default that it was introduced with, or says what holds without it, is
    left out, so a scenario keeps its hash when a key is added. A default that changes says the
    first one: `Field(2.0, json_schema_extra={"introduced": 1.0})`. The same holds for what an axis
    chooses: the hash has the keys that are not given and whose default has changed, and leaves out
    those that are given their first default.

    former: read what an axis chooses as before defaults changed: keys that are not given have the
        first default.
    """
    tree = _set(scenario)
    tree.pop("name")
    tree.pop("track", None)
    output = tree.pop("output", {})
    output.pop("folder", None)
    tree |= {"output": output} if output else {}
    tree["engine"] = {"dtype": scenario.engine.dtype}
    # the order of the axes is the order of the dims
    tree["sweep"] = [_normalise_axis(key, values, former) for key, values in scenario.sweep.items()]
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
    return _hash_of_stored(one) == _hash_of_stored(other) != ""


def restore_tree(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scenario that a file holds, as a mapping for `load_scenario`.

    In a file that was written before a default changed, what an axis chooses gets the first default
    of each key that the file does not give.

    Parameters
    ----------
    stored : the `scenario` and its `scenario_hash`, see `about`.
    """
    tree: dict[str, Any] = parse(str(stored["scenario"])).data
    if _is_former(str(stored["scenario"]), str(stored["scenario_hash"])):
        tree["sweep"] = {
            key: [_fill_in(key, value) for value in values] for key, values in tree["sweep"].items()
        }
    return tree


def list_differences(stored: Mapping[str, Any], scenario: Scenario) -> list[str]:
    """List the keys that the scenario of a file and another both have, and in which their results
    can differ; a section is one key where they choose different components.

    Parameters
    ----------
    stored : the `scenario` and its `scenario_hash`, see `about`.
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


def sources_of(scenario: Scenario) -> Sources:
    """Return the files of the user's own modules that a scenario's results depend on, and their
    hashes. Raises UserError where one that it names cannot be imported.
    """
    found: Sources = {}
    for path, section in custom_sections(scenario):
        own = loading.source(section.name, f"{dotted(path)}.name")
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
    alone.
    """
    outside = {"name", "trials", "seed", "sweep", "engine", "output", "track"}
    return _digest(structure(scenario, outside))


def _hash_of_stored(stored: Mapping[str, Any]) -> str:
    """Return the hash of the scenario that a file holds; empty where it holds none."""
    text = str(stored.get("scenario", ""))
    return _hash_of(text, _is_former(text, str(stored["scenario_hash"])))


def _is_former(text: str, digest: str) -> bool:
    """Say whether a file is read otherwise than today because it was written before a default of
    what its axes choose changed.
    """
    now = _hash_of(text, False)
    return digest != now != _hash_of(text, True)


@functools.cache
def _hash_of(text: str, former: bool) -> str:
    """Return the hash of a scenario as YAML; empty where it is none."""
    try:
        return scenario_hash(Scenario.model_validate(parse(text).data), former)
    except (UserError, ValidationError):
        return ""


def _normalise_axis(key: str, values: Sequence[Any], former: bool) -> tuple[str, list[Any]]:
    """Return an axis of the sweep with what it chooses as the hash has it."""
    return key, [_apply(key, value, functools.partial(_normalise, former)) for value in values]


def _fill_in(key: str, value: Any) -> Any:
    """Return a value of an axis with the first defaults of the keys that its choices lack."""
    return _apply(key, value, lambda kind, section: list_former_defaults(kind) | section)


def _normalise(former: bool, kind: type[BaseModel], section: dict[str, Any]) -> dict[str, Any]:
    """Return a section that an axis chooses without keys at their first default, and, unless it is
    `former`, with the present default of keys that it does not give.
    """
    first = list_former_defaults(kind)
    given = {key: value for key, value in section.items() if first.get(key, ...) != value}
    if former:
        return given
    lacking = (key for key in first if key not in section)
    return given | {key: kind.model_fields[key].default for key in lacking}


def _apply(key: str, value: Any, change: Change) -> Any:
    """Return a value of an axis in which `change` was made to each component that it chooses and of
    which a default has changed; other values stay as they are.
    """
    if key == "zip":
        return {own: _apply(own, one, change) for own, one in value.items()}
    path = tuple(key.removesuffix(".name").split("."))
    choice = CHOICES.get(path)
    kind = None if choice is None else choice.settings(value)
    if choice is None or kind is None or not list_former_defaults(kind):
        return value
    changed = change(kind, dict(choice.named(value)))
    return value if isinstance(value, str) and len(changed) == 1 else changed


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
        elif _has_changed_default(value) or (
            value != _introduced(info, plain) and value != settings.implied.get(key)
        ):
            choice = of_field(info)
            name = TABLES[choice.table].default if isinstance(choice, Choice) else ""
            own = _set(value, name) if isinstance(value, Settings) else plain[key]
            if own or not isinstance(value, Settings):
                tree[key] = own
    return tree


def _has_changed_default(value: Any) -> bool:
    """Say whether a section at its defaults differs from one at its first defaults."""
    return isinstance(value, Settings) and bool(list_former_defaults(type(value)))


def _introduced(info: FieldInfo, section: dict[str, Any]) -> Any:
    extra = info.json_schema_extra
    if isinstance(extra, dict) and "introduced" in extra:
        return extra["introduced"]
    return info.get_default(call_default_factory=True, validated_data=section)


def structure(settings: Any, outside: Set[str] = frozenset()) -> Any:
    """Return what of settings forces a stack of its own, as plain data; but for these keys."""
    if isinstance(settings, Settings):
        skip = {*settings.stackable, *outside}
        every = vars(settings) | (settings.model_extra or {})
        return {name: structure(value) for name, value in every.items() if name not in skip}
    if isinstance(settings, list | tuple):
        return [structure(item) for item in settings]
    return settings


def _digest(tree: Any) -> str:
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
