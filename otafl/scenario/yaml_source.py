"""YAML with positions: the place of each key in the file, and the meaning of plain values.

Plain values are read as in YAML 1.2, so that 5e-4 is a number, 010 is ten, and `on`, `no` or 12:30
are text. A key that is given twice is an error. So are contents that no scenario needs and that
would block the program for long: very many values, aliases that stand for as many, deep nesting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from otafl.core.errors import UserError
from otafl.core.problems import Path

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
        walker = _NodeWalker()
        places = {(): _get_place(node.start_mark)} | dict(walker.walk(node, (), ()))
        return Source(loader.construct_document(node), places, walker.empty)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = f"{error.context}: " if error.context else ""
        place = _get_place(mark) if mark else None
        raise YamlError(f"bad YAML: {context}{error.problem}", place) from error
    except (OverflowError, ValueError) as error:  # of `chr`
        mark = loader.get_mark()
        raise YamlError(
            "bad YAML: an escape that begins with \\ is beyond Unicode, whose last character is "
            "\\U0010FFFF",
            _get_place(mark),
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


def _make_size_error(node: Any) -> YamlError:
    text = (
        f"bad YAML: holds more than {MAX_VALUES:,} values, with what its aliases stand for; keep "
        "long lists in files of their own, or make several scenarios of it"
    )
    return YamlError(text, _get_place(node.start_mark))


def _make_depth_error(node: Any) -> YamlError:
    text = f"bad YAML: is nested more than {MAX_DEPTH} deep, which no key of a scenario is"
    return YamlError(text, _get_place(node.start_mark))


class _NodeWalker:
    """Traversal of a whole text, including aliases and merged mappings."""

    def __init__(self) -> None:
        self._seen = 0
        self.empty: set[Path] = set()

    def walk(
        self, node: yaml.Node, path: Path, above: tuple[yaml.Node, ...]
    ) -> Iterator[tuple[Path, tuple[int, int]]]:
        """Yield paths and places below a node.

        Raises YamlError for a duplicate key, a key that is not text, and too large contents.
        """
        if node in above:
            raise YamlError("bad YAML: an alias that contains itself", _get_place(node.start_mark))
        self._seen += 1
        if self._seen > MAX_VALUES:
            raise _make_size_error(node)
        if len(above) > MAX_DEPTH:
            raise _make_depth_error(node)
        if node.tag == "tag:yaml.org,2002:null" and not node.value:
            self.empty.add(path)
        above = (*above, node)
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                yield (*path, index), _get_place(item.start_mark)
                yield from self.walk(item, (*path, index), above)
        elif isinstance(node, yaml.MappingNode):
            yield from self._walk_mapping(node, path, above)

    def _walk_mapping(
        self, node: yaml.MappingNode, path: Path, above: tuple[yaml.Node, ...]
    ) -> Iterator[tuple[Path, tuple[int, int]]]:
        seen: dict[str, tuple[int, int]] = {}
        for key, value in node.value:
            place = _get_place(key.start_mark)
            if key.tag == "tag:yaml.org,2002:merge":
                for _ in self.walk(value, path, above):
                    pass  # counted; errors name the key that merges
                continue
            if key.tag != "tag:yaml.org,2002:str":
                shown = f" '{key.value}'" if isinstance(key, yaml.ScalarNode) else ""
                raise YamlError(f"bad YAML: the key{shown} is not text; quote it", place)
            if key.value in seen:
                first = seen[key.value][0]
                raise YamlError(
                    f"the key '{key.value}' is given twice, first in line {first}; keep one", place
                )
            seen[key.value] = place
            yield (*path, key.value), place
            yield from self.walk(value, (*path, key.value), above)


class _Loader(yaml.SafeLoader):
    """PyYAML's loader of plain data, of not more values than a scenario has."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 (PyYAML's own attribute)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._composed = self._deep = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        self._composed += 1
        self._deep += 1
        if self._composed > MAX_VALUES:
            raise _make_size_error(event)
        if self._deep > MAX_DEPTH:
            raise _make_depth_error(event)
        node = super().compose_node(parent, index)
        self._deep -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError) as error:
            kind = node.tag.rpartition(":")[2]
            place = _get_place(node.start_mark)
            raise YamlError(f"bad YAML: '{_shorten(node.value)}' is no {kind}", place) from error


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


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node).replace("_", "")
    if len(text) > MAX_DIGITS:
        raise YamlError(
            f"bad YAML: the whole number {_shorten(text)} has {len(text):,} digits; must have at "
            f"most {MAX_DIGITS}",
            _get_place(node.start_mark),
        )
    return int(text, 16) if text.startswith("0x") else int(text)


def _construct_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    text = loader.construct_scalar(node).replace("_", "").lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _shorten(text: str) -> str:
    return text if len(text) <= 20 else f"{text[:17]}..."


def _list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    flat = not any(isinstance(item, (dict, list)) for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flat)


_Loader.yaml_constructors = {
    tag: made
    for tag, made in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] in (*_PLAIN_RESOLVERS, "str", "seq", "map")
}
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Dumper.add_representer(list, _list)
