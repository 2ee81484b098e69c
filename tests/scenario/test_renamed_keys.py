"""Former names of keys and components: they warn, and hashes stay those of the former names."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from support.command import call

from otafl.core import registry
from otafl.core.errors import RenamedSetting
from otafl.results.files import open_results
from otafl.scenario import (
    ScenarioError,
    compute_scenario_hash,
    is_same,
    list_differences,
    load_scenario,
    restore_tree,
    to_yaml,
)
from otafl.scenario.renamed_keys import KEYS, TO_FORMER, TO_PRESENT
from otafl.scenario.yaml_source import dump

SLOW = {"deadline_s": 9.0, "compute": {"name": "phone", "frequency_min_share": 0.3}}
LEVELS, NOW = "devices.levels", "devices.capacity_levels"
SIZES = {"algorithm": "heterofl"}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "05e9f60fea43d164": ({"power": "none"}, {"power": "genie"}),
    "dddd618c1a816d3e": (
        {"devices": SLOW | {"frequency": {"name": "deadline", "share": 0.5}}},
        {"devices": SLOW | {"cpu_frequency": {"name": "deadline", "share": 0.5}}},
    ),
    "e312229359bace11": (
        SIZES | {"devices": {"levels": "dynamic"}},
        SIZES | {"devices": {"capacity_levels": "dynamic"}},
    ),
    "3e1842c568cc9967": (
        {"sweep": {"power": ["gbma", "none"]}},
        {"sweep": {"power": ["gbma", "genie"]}},
    ),
    "dd44dfc5a9893b69": (
        {"sweep": {"power.name": ["none", "ci"]}},
        {"sweep": {"power.name": ["genie", "ci"]}},
    ),
    "9f72471140849aa1": (
        {
            "devices": SLOW | {"frequency": "deadline"},
            "sweep": {"devices.frequency.share": [0.5, 0.7]},
        },
        {
            "devices": SLOW | {"cpu_frequency": "deadline"},
            "sweep": {"devices.cpu_frequency.share": [0.5, 0.7]},
        },
    ),
    "c8dbb1a764582baf": (
        {"sweep": {"power": ["gbma", {"name": "pre_scaler", "reckoned": 5}]}},
        {"sweep": {"power": ["gbma", {"name": "pre_scaler", "expected_transmitters": 5}]}},
    ),
    "a78c6626661f4216": (
        SIZES | {"sweep": {"zip": [
            {LEVELS: "fixed", "channel.snr_db": 1}, {LEVELS: "dynamic", "channel.snr_db": 2}]}},
        SIZES | {"sweep": {"zip": [
            {NOW: "fixed", "channel.snr_db": 1}, {NOW: "dynamic", "channel.snr_db": 2}]}},
    ),
}  # fmt: skip
"""Start of the hash, as otafl computed it when the former names were the present ones -> a scenario
under the former names, and under the present ones."""


@pytest.mark.parametrize("digest", CASES)
def test_a_former_name_warns_and_keeps_the_hash(digest: str) -> None:
    former, present = ({"name": "old"} | one for one in CASES[digest])
    with pytest.warns(RenamedSetting, match=r"' is now '.*'; version 0.3 refuses the former name"):
        old = load_scenario(former)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new = load_scenario(present)
        assert load_scenario(restore_tree({"scenario": dump(former), "scenario_hash": ""})) == old
    assert old == new
    assert compute_scenario_hash(new).startswith(digest)
    assert TO_FORMER.rename_tree(TO_PRESENT.rename_tree(former)[0])[0] == former


def test_every_former_name_is_tested() -> None:
    texts = "".join(dump(former) for former, _ in CASES.values())
    for path in KEYS:
        assert f"{path[-1]}:" in texts
    for names in registry.FORMER_NAMES.values():
        assert all(f" {former}\n" in texts for former in names)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["power=none"], "'power: none' is now 'power: genie'"),
        (["power.name=none"], "'power: none' is now 'power: genie'"),
        (["devices.levels=dynamic"], "'devices.levels' is now 'devices.capacity_levels'"),
        (["sweep.devices.levels=[dynamic, fixed]"], "'devices.levels' is now"),
        (["sweep.power=[none, ci]"], "'power: none' is now 'power: genie'"),
        (["sweep={power: [none, ci]}"], "'power: none' is now 'power: genie'"),
    ],
)
def test_overrides_have_former_names_too(overrides: list[str], message: str) -> None:
    base = {"name": "old"} | SIZES
    with pytest.warns(RenamedSetting, match=message):
        old = load_scenario(base, overrides)
    new = [one.replace("none", "genie").replace(".levels", ".capacity_levels") for one in overrides]
    assert old == load_scenario(base, new)


def test_an_error_below_a_former_name_has_its_place(tmp_path: Path) -> None:
    file = tmp_path / "old.yaml"
    file.write_text("name: old\ndevices:\n  count: 3\n  frequency: {name: full, share: 2}\n")
    with (
        pytest.warns(RenamedSetting),
        pytest.raises(ScenarioError, match=rf"{file}:4:\d+: devices.cpu_frequency.share: unknown"),
    ):
        load_scenario(file)


def test_a_key_under_both_names_is_refused() -> None:
    both = {"name": "old", "devices": {"levels": "fixed", "capacity_levels": "dynamic"}} | SIZES
    with pytest.raises(ScenarioError, match=r"devices\.levels: unknown key"):
        load_scenario(both)


def test_a_word_of_the_same_name_elsewhere_stays() -> None:
    tree = {
        "name": "old",
        "algorithm": {"name": "heterofl", "levels": [1.0, 0.5]},
        "track": "none",
        "sweep": {"algorithm": [{"name": "heterofl", "levels": [1.0]}, "fedavg"]},
    }
    assert TO_PRESENT.rename_tree(tree) == (tree, [])


def test_differences_of_files_are_not_those_of_names() -> None:
    with pytest.warns(RenamedSetting):
        former = load_scenario({"name": "old", "power": "none"})
    text = to_yaml(former).replace("genie", "none").replace("capacity_levels", "levels")
    stored = {"scenario": text, "scenario_hash": compute_scenario_hash(former)}
    changed = former.model_copy(update={"seed": 3})
    assert list_differences(stored, changed) == ["seed"]
    assert is_same(stored | {"scenario_hash": "of another version"}, stored)


@pytest.mark.slow
def test_a_sweep_of_before_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier otafl stored the former names in its folder."""
    monkeypatch.chdir(tmp_path)
    tree: dict[str, Any] = {
        "name": "old",
        "training": {"rounds": 2, "eval_samples": 20},
        "devices": {"count": 3, "frequency": "full"},
    }
    Path("old.yaml").write_text(dump(tree | {"sweep": {"power": ["none", "gbma"]}}))
    with pytest.warns(RenamedSetting):
        call("sweep", "old.yaml")
    for stored in (Path("results/old/scenario.yaml"), Path("results/old/plan.json")):
        text = stored.read_text()
        stored.write_text(text.replace("genie", "none").replace("cpu_frequency", "frequency"))
    Path("old.yaml").write_text(dump(tree | {"sweep": {"power": ["none", "gbma", "ci"]}}))
    with pytest.warns(RenamedSetting):
        call("sweep", "old.yaml")
    with open_results(Path("results/old")) as ds:
        assert ds["power"].values.tolist() == ["genie", "gbma", "ci"]
        assert bool(ds["test_accuracy"].notnull().all())
