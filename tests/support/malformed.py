"""Scenarios made from the schema, and spoilt: wrong types, huge numbers, unknown and missing keys,
wrong names, odd nesting, axes that are none, files that are cut."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from otafl.scenario import Scenario, build_json_schema
from otafl.scenario.keys import iterate_fields

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 0.5, -0.5, 1e-300, 1e308, -1e308, 10**6, 10**9, 10**18, 10**40,
    2**63, "", "x", "1e3", "NaN", "a:b", ":", "math:no_such", "no_module:make", "mlp", "gbma",
    "a\0b",
    "a\ud800", "é" * 200, "x" * 5000, [], [[]], [0], [None, 1], ["x"] * 300, {}, {"name": 3},
    {"name": "x"}, {"name": None}, {"a": {"b": {"c": []}}}, {"zip": [1]},
)  # fmt: skip

KEYS = ("name", "nam", "", "x", "zip", "rounds", "snr_db", "count", "path", "a.b", "é", "<<", "9")


@functools.cache
def load_schema() -> dict[str, Any]:
    return build_json_schema()


@functools.cache
def list_keys() -> list[str]:
    """Every dotted key of every component."""
    return sorted({key for key, _ in iterate_fields(Scenario)})


odd = st.sampled_from(ODD).map(copy.deepcopy)


@st.composite
def draw_valid(draw: st.DrawFn, node: dict[str, Any], deep: int = 0) -> Any:
    """A value that a schema takes, or nearly; of an object some of its keys."""
    if "$ref" in node:
        node = load_schema()["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    for kinds in (node.get("anyOf"), node.get("oneOf")):
        if kinds:
            return draw(draw_valid(draw(st.sampled_from(kinds)), deep))
    if "const" in node:
        return node["const"]
    if "enum" in node:
        return draw(st.sampled_from(node["enum"]))
    kind = node.get("type")
    if kind in ("integer", "number"):
        return draw(_draw_numbers(node))
    if kind == "boolean":
        return draw(st.booleans())
    if kind == "null":
        return None
    if kind == "array":
        items = node.get("items") or {"type": "integer"}
        least, most = node.get("minItems", 0), node.get("maxItems", 3)
        return draw(
            st.lists(draw_valid(items, deep + 1), min_size=least, max_size=max(least, most))
        )
    if kind == "object" or "properties" in node:
        return draw(_draw_objects(node, deep))
    return draw(st.sampled_from(["x", "digits", "a:b", "no.csv", ""]))


def _draw_numbers(node: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Mostly numbers near a bound or the default, as far as they fit; some larger ones."""
    least = node.get("minimum", node.get("exclusiveMinimum", -2))
    most = node.get("maximum", node.get("exclusiveMaximum", 1000))
    near = [least, least + 1, least + 2, least + 3, most, 10, 0.01, 0.5, 0.9, 1.0]
    if isinstance(node.get("default"), int | float):
        near += [node["default"]] * 3
    if node["type"] == "integer":
        near = [int(value) for value in near]
    fit = [v for v in near if least <= v <= most and v != node.get("exclusiveMinimum")]
    return st.sampled_from(fit or [least])


@st.composite
def _draw_objects(draw: st.DrawFn, node: dict[str, Any], deep: int) -> dict[str, Any]:
    known = node.get("properties", {})
    if not known:
        return {}
    wanted = [key for key in known if "const" in known[key] or "enum" in known[key]]
    wanted = [key for key in wanted if key == "name"] + node.get("required", [])
    more = draw(st.lists(st.sampled_from(sorted(known)), max_size=4, unique=True))
    chosen = dict.fromkeys([*wanted, *more])
    return {key: draw(draw_valid(known[key], deep + 1)) for key in chosen if key in known}


def iterate_places(tree: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a tree, below its top."""
    inside = tree.items() if isinstance(tree, dict) else ()
    inside = enumerate(tree) if isinstance(tree, list) else inside
    for key, value in inside:
        yield (*above, key)
        yield from iterate_places(value, (*above, key))


def _spoil(draw: st.DrawFn, tree: dict[str, Any]) -> None:
    """Change one thing in a tree."""
    found = list(iterate_places(tree))
    *path, last = draw(st.sampled_from(found))
    at: Any = tree
    for part in path:
        at = at[part]
    how = draw(st.sampled_from(["value", "value", "remove", "rename", "add", "within"]))
    if how == "value":
        at[last] = draw(odd)
    elif how == "remove":
        del at[last]
    elif how == "within":
        at[last] = draw(st.sampled_from([[at[last]], {"name": at[last]}, {last: at[last]}]))
    elif isinstance(at, dict):
        value = at.pop(last) if how == "rename" else draw(odd)
        at[draw(st.sampled_from(KEYS))] = value


@st.composite
def _draw_axes(draw: st.DrawFn) -> Any:
    key = st.one_of(st.sampled_from(list_keys()), st.sampled_from(KEYS))
    values = st.one_of(
        st.lists(
            st.one_of(odd, st.sampled_from([0, 1, 2, 0.1, "ci", "tci", "fedavg"])), max_size=3
        ),
        st.integers(0, 200_000).map(lambda count: list(range(count % 20_000))),
        odd,
    )
    axes = draw(st.dictionaries(key, values, max_size=3))
    if draw(st.booleans()):
        rows = st.lists(st.dictionaries(key, odd, max_size=2), max_size=3)
        axes["zip"] = draw(rows)
    return axes


@st.composite
def draw_text(draw: st.DrawFn) -> str:
    """A scenario's file; as JSON, which is YAML too."""
    tree = {"name": "fuzzed", **draw(draw_valid(load_schema()))}
    tree.pop("sweep", None)
    if draw(st.booleans()):
        return json.dumps(tree)
    if draw(st.integers(0, 2)) == 0:
        tree["sweep"] = draw(_draw_axes())
    for _ in range(draw(st.integers(0, 2))):
        if tree:
            _spoil(draw, tree)
    text = json.dumps(tree)
    if draw(st.integers(0, 5)) == 0:
        cut = draw(st.integers(0, len(text)))
        more = draw(st.sampled_from(["", "\t", "{", "*a", "&a [*a]", "!!set {a}", "- x\n", "\x01"]))
        text = text[:cut] + more + draw(st.sampled_from(["", text[cut:], text]))
    return text
