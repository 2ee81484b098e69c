"""YAML with positions: the place of each key in the file, and the meaning of plain values.

Plain values are read as in YAML 1.2, so that 5e-4 is a number, 010 is ten, and `on`, `no` or 12:30
are text. A key that is given twice is an error. So are contents that no scenario needs and that
would block the program for long: very many values, aliases that stand for as many, deep nesting.
"""

from __future__ import annotations

import itertools
import json
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from otafl.core.errors import UserError
from otafl.core.problems import Path
from otafl.core.suggestions import shorten

MAX_VALUES = 50_000
"""Largest number of keys and values of a text, including those that its aliases stand for."""

MAX_POINTS = 100_000
"""Largest number of points of a sweep: each of them is checked and has a place in the results."""

MAX_DEPTH = 40
"""Largest depth of lists and mappings."""

MAX_DIGITS = 100
"""Largest number of digits of a whole number; the largest number in double precision has 309."""


@dataclass(frozen=True)
class Source:
    """Content of a text, and its places.

    Parameters
    ----------
    data : Any
        Content.
    places : dict
        Path -> (line, column) of its key or item, from 1.
    empty : set of Path
        Keys and items without a value, which YAML reads as null.
    """

    data: Any
    places: dict[Path, tuple[int, int]] = field(default_factory=dict)
    empty: set[Path] = field(default_factory=set)


class YamlError(UserError):
    """An error in a YAML text. place: (line, column) from 1, if known."""

    def __init__(self, message: str, place: tuple[int, int] | None = None) -> None:
        super().__init__(message)
        self.place = place


def parse(text: str) -> Source:
    """Return the content of a YAML text and its places. Raises YamlError with its first error."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return Source(None, empty={()})
        source = Source(None, {(): _get_place(node.start_mark)})
        return replace(source, data=_Builder(source).build(node, (), ()))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = f"{error.context}: " if error.context else ""
        place = _get_place(mark) if mark else None
        raise YamlError(f"bad YAML: {context}{error.problem}", place) from error
    except (OverflowError, ValueError) as error:  # of `chr`
        raise YamlError(
            "bad YAML: an escape that begins with \\ is beyond Unicode, whose last character is "
            "\\U0010FFFF",
            _get_place(loader.get_mark()),
        ) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = (before.count("\n") + 1, error.position - before.rfind("\n"))
        raise YamlError(
            f"bad YAML: the character U+{error.character:04X} is not allowed", place
        ) from error


def dump(data: Any) -> str:
    """Return YAML text that `parse` reads back unchanged; lists of plain values are on one line."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def dump_in_line(data: Any) -> str:
    """Return YAML text in one line, without anchors, for messages."""
    plain = json.loads(json.dumps(data))  # no object is there twice
    text: str = yaml.safe_dump(plain, default_flow_style=True, sort_keys=False, width=10**6)
    return text.strip()


def _get_place(mark: yaml.Mark) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


class _Builder:
    """Conversion of nodes to plain data. It adds the places of keys and items to a source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._count = 0

    def build(self, node: yaml.Node, path: Path, above: tuple[yaml.Node, ...]) -> Any:
        """Return the content of a node.

        Raises YamlError for a duplicate key, a key that is not text, a tag of no plain value, and
        too large contents.
        """
        self._count += 1
        if node in above:
            raise _make_error("an alias that contains itself", node)
        _check_size(self._count, len(above), node)
        tag, above = node.tag.removeprefix("tag:yaml.org,2002:"), (*above, node)
        if isinstance(node, yaml.SequenceNode) and tag == "seq":
            for index, item in enumerate(node.value):
                self._source.places[(*path, index)] = _get_place(item.start_mark)
            return [self.build(item, (*path, i), above) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and tag == "map":
            merged: dict[str, Any] = {}
            own: dict[str, Any] = {}
            is_merge = [key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value]
            for _, value in itertools.compress(node.value, is_merge):
                if not isinstance(value, yaml.MappingNode):
                    raise _make_error("<< stands before something else than a mapping", value)
                merged |= self.build(value, path, above)
            for key, value in itertools.compress(node.value, map(operator.not_, is_merge)):
                if key.tag != "tag:yaml.org,2002:str":
                    shown = f" '{key.value}'" if isinstance(key, yaml.ScalarNode) else ""
                    raise _make_error(f"the key{shown} is not text; quote it", key)
                here, place = (*path, key.value), _get_place(key.start_mark)
                if key.value in own:
                    first = self._source.places[here][0]
                    text = f"the key '{key.value}' is given twice, first in line {first}; keep one"
                    raise YamlError(text, place)
                self._source.places[here] = place  # in place of one of `<<`
                own[key.value] = self.build(value, here, above)
            return merged | own
        if not isinstance(node, yaml.ScalarNode) or tag not in _SCALARS:
            raise _make_error(f"could not determine a constructor for the tag {node.tag!r}", node)
        if tag == "null" and not node.value:
            self._source.empty.add(path)
        try:
            return _SCALARS[tag](node)
        except (ValueError, KeyError) as error:
            raise _make_error(f"'{shorten(node.value, 20)}' is no {tag}", node) from error


def _make_error(text: str, node: Any) -> YamlError:
    return YamlError(f"bad YAML: {text}", _get_place(node.start_mark))


def _check_size(count: int, depth: int, node: Any) -> None:
    """Raise YamlError at a node that is one too many or too deep."""
    if count > MAX_VALUES:
        raise _make_error(
            f"holds more than {MAX_VALUES:,} values, with what its aliases stand for; keep "
            "long lists in files of their own, or make several scenarios of it",
            node,
        )
    if depth > MAX_DEPTH:
        raise _make_error(
            f"is nested more than {MAX_DEPTH} deep, which no key of a scenario is", node
        )


class _Loader(yaml.SafeLoader):
    """PyYAML's parser, of not more nodes than a scenario has; it finds plain types as below."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 (PyYAML's own attribute)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._count = self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._count += 1
        _check_size(self._count, self._depth, self.peek_event())
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """A writer in C if PyYAML was built with libyaml; it takes a quarter of the time."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012

    def ignore_aliases(self, data: Any) -> bool:
        return True


_PLAIN_RESOLVERS = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "int": (r"[-+]?[0-9]+(?:_[0-9]+)*|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    "merge": (r"<<", "<"),
}
"""Tag -> pattern of its plain values and their possible first characters; int goes before float."""

for _name, (_pattern, _first) in _PLAIN_RESOLVERS.items():
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_name}", re.compile(rf"^(?:{_pattern})$"), list(_first)
        )


def _read_int(node: yaml.ScalarNode) -> int:
    text = node.value.replace("_", "")
    if len(text) > MAX_DIGITS:
        raise _make_error(
            f"the whole number {shorten(text, 20)} has {len(text):,} digits; must have at most "
            f"{MAX_DIGITS}",
            node,
        )
    return int(text, 16) if text.startswith("0x") else int(text)


def _read_float(node: yaml.ScalarNode) -> float:
    text = node.value.replace("_", "").lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_SCALARS: dict[str, Callable[[yaml.ScalarNode], Any]] = {
    "str": lambda node: node.value,
    "bool": lambda node: {"true": True, "false": False}[node.value.lower()],
    "null": lambda node: None,
    "int": _read_int,
    "float": _read_float,
}
"""Tag -> function that reads a value of it. Raises ValueError or KeyError if it is none."""


def _list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    flat = not any(isinstance(item, (dict, list)) for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flat)


_Dumper.add_representer(list, _list)
