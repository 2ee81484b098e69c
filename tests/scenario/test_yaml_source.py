"""YAML with positions."""

from __future__ import annotations

from typing import Any

import pytest

from otafl.scenario.yaml_source import dump, parse

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-4", 5e-4),
        (".5", 0.5),
        ("010", 10),
        ("1_000", 1000),
        ("0x1F", 31),
        ("12:30", "12:30"),
        ("on", "on"),
        ("true", True),
        ("~", None),
        ("", None),
        ("-", [None]),
    ],
)
def test_plain_values_mean_what_yaml_1_2_says(text: str, value: Any) -> None:
    got = parse(f"a: {text}" if text != "-" else "a:\n-").data["a"]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    "value", ["5e-4", "010", "on", "", "null", "a: b", "<<", 5e-4, 1e300, 7, None, True, [1, [2]]]
)
def test_what_is_dumped_is_read_back(value: Any) -> None:
    got = parse(dump({"a": value})).data["a"]
    assert got == value
    assert type(got) is type(value)


def test_merge_keys_and_places() -> None:
    source = parse("base: &b {q: 1}\nmine:\n  <<: *b\n  r: [7, 8]\n")
    assert source.data["mine"] == {"q": 1, "r": [7, 8]}
    assert source.places["mine", "r"] == (4, 3)
    assert source.places["mine", "r", 1] == (4, 10)


def test_a_key_that_overrides_a_merged_one_has_its_own_place() -> None:
    source = parse("one: &a {q: 1, r: 1}\nmine:\n  q: 3\n  <<: *a\n")
    assert source.data["mine"] == {"q": 3, "r": 1}
    assert [source.places["mine", key] for key in "qr"] == [(3, 3), (1, 16)]
