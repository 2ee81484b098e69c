"""What `otafl check` prints: keys that were set, keys that matter, and keys without effect."""

from __future__ import annotations

from typing import Any

import pytest
from support.scenarios import SCENARIOS

from otafl import load_scenario
from otafl.core import registry
from otafl.scenario import expand, find_idle_keys, format_settings
from otafl.scenario.keys import format_path
from otafl.scenario.yaml_source import parse

pytestmark = pytest.mark.exact


def find_idle(tree: dict[str, Any]) -> dict[str, str]:
    found = find_idle_keys(expand(load_scenario({"name": "a"} | tree)))
    return {format_path(path): reason for path, reason in found.items()}


def test_what_was_set_and_what_matters() -> None:
    text = format_settings(
        load_scenario({"name": "a", "channel": "awgn", "training": {"rounds": 3, "eval_every": 1}})
    )
    lines = text.splitlines()
    assert "  name: awgn" in lines
    assert "  snr_db: 20.0  # default" in lines
    assert "  rounds: 3" in lines
    assert "  local_steps: 1  # default" in lines
    assert "impairments:" not in lines
    assert not any("norm_samples" in line for line in lines)


def test_full_prints_all() -> None:
    scenario = load_scenario({"name": "a", "transport": "digital", "power": "ci"})
    text = format_settings(scenario, expand(scenario), full=True)
    assert "norm_samples: null" in text
    assert "power:  # without effect: transport 'digital' uses no power policy" in text
    assert load_scenario(parse(text).data) == scenario or "# default" not in text


def test_swept_keys_are_not_shown_twice() -> None:
    scenario = load_scenario(
        {"name": "a", "sweep": {"channel.snr_db": [0, 1], "power.name": ["ci", "tci"]}}
    )
    text = format_settings(scenario, expand(scenario))
    assert "gbma" not in text
    assert "20.0" not in text


@pytest.mark.parametrize(
    ("tree", "idle"),
    [
        ({"transport": {"name": "digital", "shares": "active"}}, "transport.shares"),
        ({"transport": {"name": "digital", "constraint": "peak"}}, "transport.constraint"),
        ({"transport": "digital", "power": "tci"}, "power"),
        ({"impairments": {"adc_range": 2}}, "impairments.adc_range"),
        ({"impairments": {"interferers": 2}}, "impairments.interferers"),
        ({"devices": {"compute": {"jitter_scale": 0.1}}}, "devices.compute.jitter_scale"),
        ({"training": {"fine_tune_learning_rate": 1}}, "training.fine_tune_learning_rate"),
    ],
)
def test_keys_without_effect(tree: dict[str, Any], idle: str) -> None:
    assert list(find_idle(tree)) == [idle]


@pytest.mark.parametrize(
    "tree",
    [
        {"transport": {"name": "digital", "shares": "active", "gain_threshold": 0.1}},
        {"transport": {"name": "digital", "shares": "all"}},
        {"sweep": {"transport.name": ["digital", "over_the_air"], "power.name": ["ci", "tci"]}},
        {
            "transport": {"name": "digital", "shares": "active"},
            "sweep": {"transport.gain_threshold": [0.0, 0.1]},
        },
        {"impairments": {"adc_range": 2, "adc_bits": 8}},
    ],
)
def test_keys_with_an_effect_somewhere(tree: dict[str, Any]) -> None:
    assert find_idle(tree) == {}


def test_a_swept_key_without_effect_is_marked_in_the_sweep() -> None:
    scenario = load_scenario(
        {"name": "a", "transport": "digital", "sweep": {"power.name": ["ci", "tci"]}}
    )
    text = format_settings(scenario, expand(scenario))
    assert "  power.name: [ci, tci]  # without effect: transport 'digital'" in text


def test_declared_fields_exist() -> None:
    for table in registry.TABLES:
        for name in registry.list_names(table):
            kind = registry.load_settings_class(table, name)
            for pair in kind.idle_without.items():
                assert {*pair} <= {*kind.model_fields}


def test_the_page_shows_what_is_printed() -> None:
    page = (SCENARIOS.parent / "docs" / "presets.md").read_text()
    scenario = load_scenario(parse(page.split("```yaml\n")[2].split("```")[0]).data)
    shown = page.split("```text\n")[1].split("```")[0]
    text = format_settings(scenario, expand(scenario))
    assert set(shown.splitlines()) <= set(text.splitlines())
