"""The keys of settings in words: type, unit, bounds and default.

The source are the pydantic classes of the schema.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from otafl.core.choices import get_choice
from otafl.core.registry import TABLES
from otafl.core.settings import get_description, list_stackable_fields
from otafl.scenario.keys import list_classes
from otafl.scenario.yaml_source import dump_in_line

UNITS = {
    "db": "dB",
    "dbm": "dBm",
    "hz": "Hz",
    "s": "s",
    "j": "J",
    "w": "W",
    "kmh": "km/h",
    "m": "m",
    "bps": "bit/s",
    "deg": "degrees",
    "rad": "rad",
    "hour": "h",
    "mb": "MiB",
    "gb": "GB",
}
"""End of a key's name -> its unit."""

NAMES = {float: "number", int: "whole number", bool: "true or false", str: "text"}


BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True)
class Key:
    """A key of a section.

    Parameters
    ----------
    name : str
        Dotted name within the section.
    default : str, optional
        Default as YAML; None for a required key, "of its keys" for a mapping.
    kind : str
        Type, unit and bounds.
    meaning : str
        Description.
    stackable : bool
        Whether points that differ in it run in one batched program.
    """

    name: str
    default: str | None
    kind: str
    meaning: str
    stackable: bool


def find_sections(root: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Find the sections that choose no component, such as `training`, and their settings."""
    fields = {
        name: info.get_default(call_default_factory=True)
        for name, info in root.model_fields.items()
        if get_choice(info) is None
    }
    return {name: type(value) for name, value in fields.items() if isinstance(value, BaseModel)}


def describe_keys(
    config: type[BaseModel], section: str, skip: Iterable[str] = ("name",), above: str = ""
) -> Iterator[Key]:
    """Yield the keys of a settings class, followed by those of the classes inside it."""
    stackable = list_stackable_fields(config)
    for name, info in config.model_fields.items():
        if name in skip:
            continue
        key = f"{above}{name}"
        default, kind = format_default(info, section), format_type(info, key)
        yield Key(key, default, kind, get_description(info), name in stackable)
        for inside in list_classes(info.annotation):
            yield from describe_keys(inside, section, (), f"{key}.")


def format_type(info: FieldInfo, key: str) -> str:
    """Return the type, unit and bounds of a field, in words."""
    if choice := get_choice(info):
        own = " or module:callable" if TABLES[choice.table].supports_custom else ""
        return f"a name of the table {choice.table}{own}"
    words = _format_annotation(info.annotation, info.metadata)
    unit = get_unit(key)
    return f"{words}, in {unit}" if unit and "number" in words else words


def get_unit(key: str) -> str:
    """Return the unit by the end of a key's name, or nothing."""
    stem, _, end = key.rpartition("_")
    return UNITS.get(end, "") if stem and not key.endswith("per_s") else ""


def _format_annotation(annotation: Any, metadata: list[Any]) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = [m for one in args[1:] for m in getattr(one, "metadata", [one])]
        return _format_annotation(args[0], [*metadata, *inner])
    if origin in (Union, types.UnionType):
        words = (_format_annotation(one, metadata) for one in args if one is not type(None))
        return " or ".join(dict.fromkeys(words))
    if origin is Literal:
        return "one of " + ", ".join(str(one) for one in args)
    if origin in (tuple, list):
        count = f"of {len(args)}, " if origin is tuple and args[-1] is not Ellipsis else ""
        return f"list, {count}each: {_format_annotation(args[0], [])}"
    if origin is dict:
        key, value = (_format_annotation(one, []) for one in args)
        return f"mapping, each: {key} to {value}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping of the keys below"
    bounds = [
        f"{text} {getattr(one, bound):g}"
        for bound, text in BOUNDS.items()
        for one in metadata
        if getattr(one, bound, None) is not None
    ]
    return " ".join(filter(None, (NAMES.get(annotation, "anything"), " and ".join(bounds))))


def format_default(info: FieldInfo, section: str) -> str | None:
    """Return the default of a key as YAML; None if it is required.

    It may follow from the component's name, the end of the section's: `channel-tdl-a`.
    """
    choice = get_choice(info)
    if choice is not None:
        return choice.default_name
    if info.is_required():
        return None
    given = {"name": section.partition("-")[2]}
    value = info.get_default(call_default_factory=True, validated_data=given)
    return "of its keys" if isinstance(value, BaseModel) else dump_in_line([value])[1:-1]
