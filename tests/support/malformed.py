"""Examples of components, spoilt: wrong types, huge numbers, unknown and missing keys, wrong names,
odd nesting, axes that are none, files that are cut."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from otafl.core import registry
from otafl.scenario import Scenario, writing
from otafl.scenario.keys import iterate_fields, set_value
from otafl.scenario.yaml_source import parse

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 0.5, -0.5, 1e-300, 1e308, -1e308, 10**6, 10**9, 10**18, 10**40,
    2**63, "", "x", "1e3", "NaN", "a:b", ":", "math:no_such", "no_module:make", "mlp", "gbma",
    "a\0b",
    "a\ud800", "é" * 200, "x" * 5000, [], [[]], [0], [None, 1], ["x"] * 300, {}, {"name": 3},
    {"name": "x"}, {"name": None}, {"a": {"b": {"c": []}}}, {"zip": [1]},
)  # fmt: skip

KEYS = ("name", "nam", "", "x", "zip", "rounds", "snr_db", "count", "path", "a.b", "é", "<<", "9")


@functools.cache
def list_keys() -> list[str]:
    """Every dotted key of every component."""
    return sorted({key for key, _ in iterate_fields(Scenario)})


@functools.cache
def list_trees() -> list[dict[str, Any]]:
    """The example of every component."""
    return [
        parse(writing.format_example(table, name)).data
        for table in registry.TABLES
        for name in registry.list_names(table)
    ]


odd = st.sampled_from(ODD).map(copy.deepcopy)


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
    """A scenario's file, of a component's example with other keys; as JSON, which is YAML too."""
    tree = copy.deepcopy(draw(st.sampled_from(list_trees())))
    for key in draw(st.lists(st.sampled_from(list_keys()), max_size=3)):
        with contextlib.suppress(KeyError):  # a number stands in the place of a section
            tree = set_value(tree, tuple(key.split(".")), draw(odd | st.floats(0.0, 20.0)))
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
