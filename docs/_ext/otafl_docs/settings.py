"""Tables of settings, from the pydantic classes that are the schema."""

from __future__ import annotations

import math
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from otafl.core.choices import Choice, Section, of_field
from otafl.core.registry import TABLES
from otafl.core.settings import stackable_fields
from otafl_docs import rst

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
"""What the end of a key's name says of its unit."""

NAMES = {float: "number", int: "whole number", bool: "true or false", str: "text"}


def label(section: str, key: str) -> str:
    """The anchor of a key: `training`, `eval_every` -> `key-training-eval-every`."""
    return "key-" + f"{section}-{key}".strip("-").replace(".", "-").replace("_", "-").lower()


def settings_table(config: type[BaseModel], section: str, skip: tuple[str, ...] = ("name",)) -> str:
    """One row a key of a settings class, those of classes inside it below them; an empty text for
    one that has none. section: what the anchors begin with."""
    rows = list(_rows(config, section, "", skip))
    if not rows:
        return ""
    return rst.table(("Key", "Default", "Meaning"), rows, "settings keys", "24 21 55")


def _rows(
    config: type[BaseModel], section: str, above: str, skip: tuple[str, ...]
) -> Iterator[tuple[str, str, str]]:
    stackable = stackable_fields(config)
    for name, info in config.model_fields.items():
        if name in skip and not above:
            continue
        key = f"{above}{name}"
        marks = " :stackable:`stackable`" if name in stackable else ""
        kind = f":kind:`{kind_of(info, key)}`{marks}"
        meaning = f"{rst.escaped(info.description or '')}\n\n{kind}".strip()
        yield f".. _{label(section, key)}:\n\n{rst.literal(key)}", _default(info, section), meaning
        found = of_field(info)
        inner = [found.kind] if isinstance(found, Section) else _classes(info.annotation)
        for inside in () if chosen_from(info) else inner:
            yield from _rows(inside, section, f"{key}.", ())


def chosen_from(info: FieldInfo) -> str | None:
    """The table that a field chooses a component of."""
    found = of_field(info)
    return found.table if isinstance(found, Choice) else None


def _classes(annotation: Any) -> list[type[BaseModel]]:
    """The settings classes in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for arg in get_args(annotation) for found in _classes(arg)]


def kind_of(info: FieldInfo, key: str) -> str:
    """The type, unit and bounds of a field, in words."""
    table = chosen_from(info)
    if table:
        own = " or module:callable" if TABLES[table].custom else ""
        return f"a name of the table {table}{own}"
    words = _kind(info.annotation, info.metadata)
    ends = key.rpartition("_")
    unit = UNITS.get(ends[2]) if ends[1] and not key.endswith("per_s") else None
    if unit and "number" in words:
        words += f", in {unit}"
    return words


def _kind(annotation: Any, metadata: list[Any]) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = [m for one in args[1:] for m in getattr(one, "metadata", [one])]
        return _kind(args[0], [*metadata, *inner])
    if origin in (Union, types.UnionType):
        return _alternatives([one for one in args if one is not type(None)], metadata)
    if origin is Literal:
        return "one of " + ", ".join(str(one) for one in args)
    if origin is tuple:
        return _list(args, metadata)
    if origin is list:
        return f"list of {plural(_kind(args[0], []))}"
    if origin is dict and args[1] == list[Any]:
        return "mapping of keys to lists"
    if origin is dict:
        return f"mapping of {plural(_kind(args[0], []))} to {plural(_kind(args[1], []))}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping of the keys below"
    return NAMES.get(annotation, "anything") + _bounds(metadata)


def _alternatives(args: list[Any], metadata: list[Any]) -> str:
    words = []
    for one in args:
        word = _kind(one, metadata)
        if word not in words:
            words.append(word)
    return " or ".join(words)


def _list(args: tuple[Any, ...], metadata: list[Any]) -> str:
    if args[-1] is Ellipsis:
        least = next((m.min_length for m in metadata if hasattr(m, "min_length")), 0)
        more = ", at least one" if least == 1 else ""
        return f"list of {plural(_kind(args[0], []))}{more}"
    return f"list of {len(args)} {plural(_kind(args[0], []))}"


def plural(words: str) -> str:
    """`number above 0` -> `numbers above 0`."""
    for one, many in (("whole number", "whole numbers"), ("number", "numbers"), ("text", "texts")):
        if words.startswith(one):
            return many + words[len(one) :]
    if words.startswith("mapping"):
        return "mappings" + words[len("mapping") :]
    return words


def _bounds(metadata: list[Any]) -> str:
    least, most = "", ""
    for one in metadata:
        for name, text in (("ge", "at least"), ("gt", "above")):
            if getattr(one, name, None) is not None:
                least = f" {text} {_number(getattr(one, name))}"
        for name, text in (("le", "at most"), ("lt", "below")):
            if getattr(one, name, None) is not None:
                most = f" {text} {_number(getattr(one, name))}"
    return f"{least} and{most}" if least and most else least or most


def _number(value: float) -> str:
    if value == math.pi:
        return "pi"
    if isinstance(value, int) and value >= 2**31 and value.bit_count() == 1:
        return f"2^{value.bit_length() - 1}"
    return f"{value:g}"


def _default(info: FieldInfo, section: str) -> str:
    """Return what a key is if it is not given; it may follow from the component's name."""
    table = chosen_from(info)
    if table:
        return rst.literal(TABLES[table].default)
    if info.is_required():
        return ":required:`required`"
    given = {"name": section.partition("-")[2]}
    value = info.get_default(call_default_factory=True, validated_data=given)
    return rst.literal(value_text(value)) if not isinstance(value, BaseModel) else "of its keys"


def value_text(value: Any) -> str:
    """A default as a YAML file would say it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(value_text(one) for one in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {value_text(v)}" for k, v in value.items()) + "}"
    return str(value) if str(value) else '""'
