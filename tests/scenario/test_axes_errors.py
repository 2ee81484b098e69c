"""Faults of the section sweep, and of single points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.faults_of import list_faults, list_file_faults

from otafl.core import registry
from otafl.scenario import Scenario, ScenarioError, expand

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ({"seed.x": [1]}, "sweep: 'seed.x': seed has no keys of its own"),
        (
            {"power": [3]},
            "sweep: power: got 3; must be names, or mappings with a name and settings",
        ),
        (
            {"devices": [1]},
            "sweep: 'devices' is a section; sweep one of its keys, like devices.count",
        ),
        (
            {"trials": [1]},
            "sweep: 'trials' cannot be swept: it does not change what a trial computes",
        ),
        (
            {"channel.snr_db": 3},
            "sweep: channel.snr_db: got 3; must be a list of at least one value",
        ),
        ({"channel.snr_db": [1, 1.0]}, "sweep: channel.snr_db: 1 is listed twice; keep one"),
        (
            {"power": ["ci"], "power.name": ["tci"]},
            "sweep: 'power' and 'power.name' set the same key; keep one",
        ),
        ([1], "sweep: got [1]; must be a mapping of keys"),
        (
            {"zip": {"seed": [1]}},
            "sweep: zip: must be a list of mappings, each with a value for the same keys",
        ),
        (
            {"zip": [{"seed": 1}, {"devices.count": 2}]},
            "sweep: zip[1]: has the keys devices.count, but zip[0] has seed; every entry must set "
            "the same keys",
        ),
        (
            {"channel.snr_db": [1, "a"]},
            "sweep: channel.snr_db=a: channel.snr_db: got 'a'; must be a number",
        ),
        (
            {"power.name": ["tci", "ci"], "channel.snr_db": [0, 5], "power.threshold": [0.1, 0.2]},
            "sweep: power.name=ci, power.threshold=0.1 (and 1 more): power.threshold: unknown key; "
            "it is a key of tci, not of ci (known keys: name)",
        ),
        (
            {"devices.count": [2, 50], "devices.participants": [5]},
            "sweep: devices.count=2, devices.participants=5: devices.participants: got 5, more "
            "than devices.count (2); leave it out for all devices",
        ),
    ],
)
def test_a_sweep(sweep: Any, said: str) -> None:
    assert list_faults({"seed": 0, "sweep": sweep}) == [said]


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        (
            {"algorithm": ["ditto", {"name": "fedprox", "learning_rate": 0.2}]},
            "sweep: algorithm: would drop algorithm.penalty; sweep algorithm.name, which keeps it, "
            "or write it into the values",
        ),
        (
            {"algorithm.name": ["ditto", "fedavg"]},
            "sweep: algorithm.name=fedavg: algorithm.penalty: unknown key; it is a key of ",
        ),
        (
            {"data": ["mnist"], "data.partition.name": ["label_skew"]},
            "sweep: data: would drop data.partition; sweep data.name",
        ),
    ],
)
def test_a_key_that_an_axis_would_drop(axis: dict[str, Any], said: str) -> None:
    tree = {
        "algorithm": {"name": "fedprox", "learning_rate": 0.2, "penalty": 0.1},
        "data": {"name": "digits", "partition": {"name": "label_skew", "classes_per_device": 2}},
    }
    (fault,) = list_faults(tree | {"sweep": axis})
    assert fault.startswith(said)


def test_a_point_that_cannot_be_is_laid_to_its_axis(tmp_path: Path) -> None:
    text = """name: x
devices: {participants: 20}
sweep:
  channel.snr_db: [0, 10]
  devices.count:
    - 10
    - 50
  zip:
    - {seed: 1, algorithm.name: fedavg}
    - {seed: 2, algorithm.name: fedrl}
"""
    assert list_file_faults(tmp_path, text) == [
        "quickstart.yaml:6:7: sweep: devices.count=10: devices.participants: got 20, more than "
        "devices.count (10); leave it out for all devices",
        "quickstart.yaml:10:17: sweep: algorithm.name=fedrl: algorithm: unknown algorithm 'fedrl'; "
        f"did you mean 'fedrlr'? known: {', '.join(registry.list_names('algorithm'))}, or "
        "module:callable of your own",
    ]


def test_a_grid_is_counted_before_it_is_built(tmp_path: Path) -> None:
    text = """name: x
sweep:
  channel.snr_db: [{}]
  seed: [{}]
"""
    values = ", ".join(map(str, range(-900, 901)))
    assert list_file_faults(tmp_path, text.format(values, ", ".join(map(str, range(1801))))) == [
        "quickstart.yaml:2:1: sweep: has 3,243,601 points (channel.snr_db 1,801 x seed 1,801); "
        "must have at most 100,000: list fewer values, let keys advance together in zip, or make "
        "several sweeps of it"
    ]
    rows = [{"seed": seed, "channel.snr_db": 1} for seed in range(100_001)]
    assert "has 100,001 points (zip 100,001)" in list_faults({"sweep": {"zip": rows}})[0]
    with pytest.raises(ScenarioError, match="has 100,001 points"):
        expand(Scenario(name="x", sweep={"seed": list(range(100_001))}))


def test_a_grid_of_sections_is_counted_before_it_is_built() -> None:
    """Of a key below two swept sections too, which either of them decides."""
    folders = [{"name": "digits", "root": f"/{one}"} for one in range(10_000)]
    splits = [{"name": "lognormal", "sigma": one / 1000} for one in range(1, 10_001)]
    axes = {"data": folders, "data.partition": splits, "data.partition.sigma": [1]}
    assert "has 100,000,000 points" in list_faults({"sweep": axes})[0]


def test_expanding_a_scenario_that_was_made_by_hand_checks_it_too() -> None:
    with pytest.raises(ScenarioError, match=r"channel\.snrdb: unknown key; did you mean 'snr_db'"):
        expand(Scenario(name="x", sweep={"channel.snrdb": [1]}))
    with pytest.raises(ScenarioError, match=r"devices\.late: 'next' needs"):
        expand(Scenario.model_validate({"name": "x", "devices": {"late": "next"}}))
