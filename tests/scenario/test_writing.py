"""Scenarios as text, and the JSON schema."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from support.scenarios import LARGE, SCENARIO_FILES, SCENARIOS, make_scenario, write_scenario

from otafl.core import registry
from otafl.scenario import (
    build_json_schema,
    compute_scenario_hash,
    expand,
    format_settings,
    load_scenario,
    make_stack_key,
    to_yaml,
)
from otafl.scenario.loading import load_points
from otafl.scenario.yaml_source import parse

pytestmark = pytest.mark.exact

FILES = [
    file
    for turn, file in enumerate(SCENARIO_FILES)
    if file.stem not in LARGE and (file.parent == SCENARIOS or turn % 9 == 0)
]
"""All examples, and each ninth scenario of the studies."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_filled_in_and_the_short_text_read_back(file: Path, tmp_path: Path) -> None:
    once, points = load_points(file)
    short = load_scenario(parse(format_settings(once)).data)
    assert compute_scenario_hash(short) == compute_scenario_hash(once)
    again, others = load_points(write_scenario(tmp_path, to_yaml(once)))
    assert to_yaml(again) == to_yaml(once)
    assert compute_scenario_hash(again) == compute_scenario_hash(once)
    assert [make_stack_key(p.scenario) for p in others] == [
        make_stack_key(p.scenario) for p in points
    ]


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ({}, 20.0),
        ({"channel": {"path_loss_db": 80}}, None),
        ({"channel": {"name": "umi", "snr_db": 3}}, 3.0),
        ({"sweep": {"channel.path_loss_db": [80, 90]}}, None),
    ],
)
def test_filled_in_yaml_shows_the_snr_that_holds(keys: dict[str, Any], shown: Any) -> None:
    once = make_scenario(**keys)
    text = to_yaml(once)
    assert parse(text).data["channel"]["snr_db"] == shown
    again = load_scenario(parse(text).data)
    assert compute_scenario_hash(again) == compute_scenario_hash(once)
    assert [p.coords for p in expand(again)] == [p.coords for p in expand(once)]


@pytest.mark.parametrize("key", ["algorithm", "algorithm.name"])
def test_a_swept_section_has_only_its_given_keys(key: str) -> None:
    """Its defaults are not those of the swept components: 0.1 for FedAvg and 0.01 for Ditto."""
    names: list[Any] = ["fedavg", "ditto"]
    once = make_scenario(sweep={key: names})
    assert parse(to_yaml(once)).data["algorithm"] == {"name": "fedavg"}
    rates = [point.scenario.algorithm.learning_rate for point in expand(once)]
    assert rates == [0.1, 0.01]
    again = load_scenario(parse(to_yaml(once)).data)
    assert [p.scenario.algorithm.learning_rate for p in expand(again)] == rates


def test_keys_beside_a_swept_name_read_back_and_count_in_the_hash() -> None:
    axis = {"algorithm.name": ["fedavg", "ditto"]}
    once = make_scenario(algorithm={"learning_rate": 0.1}, sweep=axis)
    again = load_scenario(parse(to_yaml(once)).data)
    assert [p.scenario.algorithm.learning_rate for p in expand(again)] == [0.1, 0.1]
    assert compute_scenario_hash(again) == compute_scenario_hash(once)
    assert compute_scenario_hash(once) != compute_scenario_hash(make_scenario(sweep=axis))


def test_json_schema() -> None:
    schema = build_json_schema()
    power = schema["properties"]["power"]["anyOf"]
    assert power[0] == {"enum": list(registry.list_names("power"))}
    kinds = {one["title"]: one for one in power[-1]["oneOf"]}
    assert list(kinds) == [*registry.list_names("power"), "module:callable"]
    assert kinds["tci"]["properties"]["threshold"]["stackable"] is True
    assert kinds["tci"]["properties"]["name"]["const"] == "tci"
    assert kinds["tci"]["description"] == registry.read_info("power", "tci").summary
    # without a name a section is its default choice, and only that
    assert kinds["tci"]["required"] == ["name"]
    assert "required" not in kinds["gbma"]
    channels = {one["title"]: one for one in schema["properties"]["channel"]["anyOf"][-1]["oneOf"]}
    assert channels["rayleigh"]["additionalProperties"] is False
    assert channels["module:callable"]["additionalProperties"] is True
    data = {one["title"]: one for one in schema["properties"]["data"]["anyOf"][-1]["oneOf"]}
    partition = data["digits"]["properties"]["partition"]["anyOf"]
    assert partition[0] == {"enum": list(registry.list_names("partition"))}
    assert schema["required"] == ["name"]


@functools.cache
def make_schema_checker() -> Any:
    jsonschema = pytest.importorskip("jsonschema")
    return jsonschema.Draft202012Validator(build_json_schema())


def is_valid(tree: dict[str, Any]) -> bool:
    return bool(make_schema_checker().is_valid({"name": "a"} | tree))


@pytest.mark.parametrize(
    ("tree", "valid"),
    [
        ({"extends": "urban_micro"}, True),
        ({"extends": "../lab/base.yml"}, True),
        ({"extends": "urban_mikro"}, False),
        ({"sweep": {"channel.snr_db": [1, 2], "power.name": ["ci"]}}, True),
        ({"sweep": {"power": ["ci"], "zip": [{"seed": 1, "trials": 2}]}}, True),
        ({"sweep": {"channel.snr_db": 1}}, False),
        ({"channel": {"name": "mine:fading"}, "sweep": {"channel.depth": [1, 2]}}, True),
    ],
)
def test_the_schema_checks_bases_and_swept_keys(tree: dict[str, Any], valid: bool) -> None:
    assert is_valid(tree) is valid
