"""What is said of a scenario that is wrong: key, value, remedy and place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.faults_of import POLICIES, TOP, list_faults, list_file_faults

from otafl.core.registry import list_names
from otafl.scenario import ScenarioError, load_scenario
from otafl.scenario.schema import TARGETS

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"training": {"learning_rate": 1}},
            "training.learning_rate: unknown key; did you mean 'algorithm.learning_rate'? (known",
        ),
        (
            {"channel": {"file": "h.csv"}},
            "channel.file: unknown key; did you mean 'path'? it is a key of trace, not of rayleigh",
        ),
        (
            {"channel": {"noise_db": 3}},
            "channel.noise_db: unknown key; did you mean 'snr_db'? The noise is set by ",
        ),
        (
            {"algorithm": {"local_epochs": 3}},
            "algorithm.local_epochs: unknown key; did you mean 'training.local_epochs'?",
        ),
        (
            {"transport": "fsk_mv"},
            "transport: unknown transport 'fsk_mv'; did you mean 'fsk_majority_vote'? known: ",
        ),
    ],
)
def test_the_key_of_another_section_comes_before_one_that_is_only_spelled_alike(
    tree: dict[str, Any], said: str
) -> None:
    assert list_faults(tree)[0].startswith(said)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"power": {"name": "tci", "treshold": 0.2}},
            "power.treshold: unknown key; did you mean 'threshold'? (known keys: name, threshold, "
            "relative, reference, constraint, gamma)",
        ),
        (
            {"power": {"treshold": 0.2}},
            "power.treshold: unknown key; did you mean 'threshold'? it is a key of tci, not of "
            "gbma (known keys: name, gain_target, reference, gamma)",
        ),
        (
            {"power": "gbam"},
            f"power: unknown power policy 'gbam'; did you mean 'gbma'? known: {POLICIES}, or "
            "module:callable of your own",
        ),
        (
            {"data": "imagenet"},
            f"data: unknown data set 'imagenet'; known: {', '.join(list_names('data'))}, or "
            "module:callable of your own",
        ),
        (
            {"data": {"partition": {"alpha": 1}}},
            "data.partition.alpha: unknown key; it is a key of dirichlet and dirichlet_mix and "
            "by_place, not of iid (known keys: name)",
        ),
        ({"model": "a:b:c"}, "model: got 'a:b:c'; must be of the form module:callable"),
        (
            {"power": None},
            f"power: got null; must be a name or a mapping of keys: {POLICIES}",
        ),
        ({"power": {"name": 3}}, f"power.name: got 3; must be a name: {POLICIES}"),
        ({"modle": "mlp"}, f"modle: unknown key; did you mean 'model'? {TOP}"),
        ({"zzz": 3}, f"zzz: unknown key {TOP}"),
        (
            {"engine": {"device": "gpu"}},
            "engine.device: got 'gpu'; must be 'auto', 'cpu' or 'cuda'; did you mean 'cuda'?",
        ),
        ({"devices": {"count": -3}}, "devices.count: got -3; must be greater than or equal to 1"),
        ({"devices": {"count": "ten"}}, "devices.count: got 'ten'; must be a whole number"),
        ({"devices": [1]}, "devices: got [1]; must be a mapping of keys"),
        ({"trials": True}, "trials: got true; must be a number"),
        (
            {"output": {"save_link": "maybe"}},
            "output.save_link: got 'maybe'; must be true or false",
        ),
        ({"channel": {"snr_db": float("inf")}}, "channel.snr_db: got inf; must be a finite number"),
        ({"model": {"hidden": []}}, "model.hidden: got []; must be a list of at least 1"),
        (
            {"algorithm": {"name": "fedrlr", "rank": {"a": 1}}},
            "algorithm.rank: got {'a': 1}; must be a whole number or a list",
        ),
        (
            {"algorithm": {"name": "fedrlr", "c1": 3}},
            "algorithm: c1 must be below 1 (Lemma 2); got 3",
        ),
        ({"devices": {"compute": "classes"}}, "devices.compute.classes: must be given"),
        (
            {
                "devices": {
                    "compute": {"name": "classes", "classes": [{"flops_per_s": 3, "shar": 1}]}
                }
            },
            "devices.compute.classes[0].shar: unknown key; did you mean 'share'? (known keys: "
            "flops_per_cycle, kappa, frequency_min_share, memory_mb, battery_j, charge, restart, "
            "harvest_w, circuit_w, receive_w, idle_w, sleep_w, efficiency, power_db, flops_per_s, "
            "share)",
        ),
        (
            {"training": {"stop_at": {"test_acc": 0.5}}},
            "training.stop_at.test_acc: unknown key; did you mean 'test_accuracy'? (known keys: "
            f"{', '.join(TARGETS)})",
        ),
        (
            {"training": {"stop_at": {"test_accuracy": 90}}},
            "training.stop_at.test_accuracy: got 90; must be less than or equal to 1",
        ),
        ({"name": 3}, "name: got 3; must be text"),
        (
            {"name": "a/b"},
            "name: got 'a/b'; must be letters, digits, '_', '-' and '.', at most 150 bytes, "
            "because files are named after it",
        ),
    ],
)
def test_one_fault(tree: dict[str, Any], said: str) -> None:
    assert list_faults(tree) == [said]


def test_a_name_must_be_given() -> None:
    with pytest.raises(ScenarioError) as error:
        load_scenario({})
    assert str(error.value) == "name: must be given, like 'name: my_run'"


def test_every_fault_is_said_with_its_place_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """name: x
zz: 1
power:
  name: tci
  treshold: 0.2
devices: {count: -3, compute: {name: phon}}
model: {hidden: [3, 0]}
"""
    assert list_file_faults(tmp_path, text) == [
        f"quickstart.yaml:2:1: zz: unknown key {TOP}",
        "quickstart.yaml:5:3: power.treshold: unknown key; did you mean 'threshold'? (known keys: "
        "name, threshold, relative, reference, constraint, gamma)",
        "quickstart.yaml:6:11: devices.count: got -3; must be greater than or equal to 1",
        "quickstart.yaml:6:32: devices.compute.name: unknown compute 'phon'; did you mean 'phone'? "
        f"known: {', '.join(list_names('compute'))}",
        "quickstart.yaml:7:21: model.hidden[1]: got 0; must be greater than or equal to 1",
    ]


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"training": {"rounds": 10**18}}, "must be at most 1,000,000,000"),
        ({"model": {"hidden": [4, 10**10]}}, "model.hidden[1]: got 10000000000; must be at most"),
        ({"seed": 10**18}, ""),
        ({"downlink": {"name": "ideal"}, "devices": {"downlink_rate_bps": 10**12}}, ""),
        ({"output": {"folder": "a\0b"}}, "output.folder: got 'a\\x00b'; must have no NUL"),
        ({"output": {"folder": "a\ud800"}}, "output.folder: got 'a\\ud800'; must be text"),
        ({"name": "n" * 5000}, "must be letters, digits, '_', '-' and '.', at most 150 bytes"),
        (
            {"devices": {"availability": {"name": "markov", "mean_on_s": 1e-9}}},
            "devices.availability.mean_on_s: got 1e-09; must be greater than or equal to 0.001",
        ),
    ],
)
def test_bounds(tree: dict[str, Any], said: str) -> None:
    if not said:
        load_scenario({"name": "x", **tree})
        return
    (line,) = list_faults(tree)
    assert said in line


def test_of_many_unknown_keys_the_first_are_told() -> None:
    """A hint for each of 20,000 would take hours; twenty say that the file is another's."""
    said = list_faults({"name": "x"} | {f"key_{i}": 1 for i in range(20_000)})
    assert len(said) == 21
    assert said[-1].startswith("19,980 more unknown keys")
