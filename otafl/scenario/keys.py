"""Keys of a scenario, their settings classes, and access by dotted name."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from otafl.core.choices import Choice, get_choice
from otafl.core.problems import Path
from otafl.core.registry import TABLES
from otafl.core.settings import Settings
from otafl.user_code.custom_part import CustomPart

CHOICES: dict[Path, Choice] = {table.path: Choice(name) for name, table in TABLES.items()}
"""Sections that choose a component -> their choice."""


def format_path(path: Path) -> str:
    """Return a path as `model.hidden[1]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def split(key: str) -> Path:
    """Return the path of a dotted key; an axis of the sweep has its own dots."""
    if key.startswith("sweep."):
        return ("sweep", key.removeprefix("sweep."))
    return tuple(key.split("."))


def flatten(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each dotted key of a tree with its value; an empty mapping is a value."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def get_child(tree: Any, part: str | int) -> Any:
    """Return the value below a key or index, or None."""
    if isinstance(tree, Mapping):
        return tree.get(part)
    if isinstance(tree, list | tuple) and isinstance(part, int) and part < len(tree):
        return tree[part]
    return None


def get_value(tree: Any, path: Path) -> Any:
    """Return the value at a path, or None."""
    return functools.reduce(get_child, path, tree)


def set_value(tree: Mapping[str, Any], path: Path, value: Any, above: Path = ()) -> dict[str, Any]:
    """Return a copy of the tree with the value at the path.

    Raises KeyError(path) if a key above it has a value without keys.
    """
    first, rest = path[0], path[1:]
    if not rest:
        return {**tree, str(first): value}
    here = (*above, first)
    inner = tree.get(str(first))
    if isinstance(inner, str) and here in CHOICES:
        inner = {"name": inner}
    if inner is None:
        inner = {}
    if not isinstance(inner, Mapping):
        raise KeyError(here)
    return {**tree, str(first): set_value(inner, rest, value, here)}


def iterate_fields(root: type[BaseModel], above: Path = ()) -> Iterator[tuple[str, FieldInfo]]:
    """Yield every dotted key below a settings class with its field.

    The keys of all components of a table are included. A key of several components appears several
    times. All components are imported.
    """
    for name, info in root.model_fields.items():
        path = (*above, name)
        yield format_path(path), info
        for kind in iterate_settings_classes(info):
            yield from iterate_fields(kind, path)


def iterate_sections(settings: Settings, above: Path = ()) -> Iterator[tuple[Path, Settings]]:
    """Yield every present section below settings, with its keys."""
    for name, value in vars(settings).items():  # a third of the time of pydantic's own loop
        if isinstance(value, Settings):
            yield (*above, name), value
            yield from iterate_sections(value, (*above, name))


def iterate_custom_sections(settings: Settings) -> Iterator[tuple[Path, CustomPart]]:
    """Yield the sections that name a user-defined component, with their keys."""
    for path, section in iterate_sections(settings):
        if isinstance(section, CustomPart):
            yield path, section


def is_section(info: FieldInfo) -> bool:
    """Return whether a field has keys of its own in every scenario, which can be swept."""
    return get_choice(info) is not None or _is_settings(info.annotation)


def find_settings_class(root: type[BaseModel], path: Path, tree: Any) -> type[BaseModel] | None:
    """Return the settings class with the keys below a path, as the tree chooses it."""
    model: type[BaseModel] | None = root
    for part in path:
        tree = get_child(tree, part)
        if isinstance(part, int):
            continue
        if model is None or part not in model.model_fields:
            return None
        info = model.model_fields[part]
        choice = get_choice(info)
        if choice is not None:
            model = choice.find_settings_class(tree)
        else:
            model = next(iter(list_classes(info.annotation)), None)
    return model


def iterate_settings_classes(info: FieldInfo) -> Iterator[type[BaseModel]]:
    """Yield the settings classes of a field, except those in lists and alternatives."""
    choice = get_choice(info)
    if choice is not None:
        yield from dict.fromkeys(choice.load_all_settings_classes().values())
    elif _is_settings(info.annotation):
        yield info.annotation  # type: ignore[misc]


def _is_settings(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def list_classes(annotation: Any) -> list[type[BaseModel]]:
    """Return the settings classes in an annotation, as in a list of them."""
    if _is_settings(annotation):
        return [annotation]
    return [found for arg in get_args(annotation) for found in list_classes(arg)]
