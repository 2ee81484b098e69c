"""What a scenario that is wrong is answered, word for word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otafl.algorithms.config import FedAvgConfig
from otafl.core import registry
from otafl.core.errors import UserError
from otafl.scenario import Scenario, ScenarioError, expand, load_scenario

POLICIES = ", ".join(registry.names("power"))
TOP = (
    "(known keys: name, data, model, algorithm, channel, csi, receiver, power, impairments, "
    "faults, codec, transport, signalling, server, downlink, devices, training, trials, seed, "
    "sweep, engine, output)"
)


def lines(tree: dict[str, Any], *overrides: str) -> list[str]:
    """What is said of a scenario given as a mapping."""
    with pytest.raises(ScenarioError) as error:
        load_scenario({"name": "x", **tree}, overrides)
    assert str(error.value) == "\n".join(error.value.lines)
    return list(error.value.lines)


def lines_of_file(folder: Path, text: str, *overrides: str) -> list[str]:
    """The same of a file, its folder cut off."""
    path = folder / "quickstart.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as error:
        load_scenario(str(path), overrides)
    return [line.replace(f"{folder}/", "") for line in error.value.lines]


def test_it_is_a_user_error() -> None:
    assert issubclass(ScenarioError, UserError)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"power": {"name": "tci", "treshold": 0.2}},
            "power.treshold: unknown key; did you mean 'threshold'? (known keys: name, threshold, "
            "relative, reference, count_policy_power, constraint, gamma)",
        ),
        (
            {"power": {"name": "gbma", "threshold": 0.2}},
            "power.threshold: unknown key; it is a key of tci, not of gbma (known keys: name, "
            "gain_target, reference, gamma)",
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
            {"power": {"name": "gbam", "reference": 3}},
            f"power.name: unknown power policy 'gbam'; did you mean 'gbma'? known: {POLICIES}, or "
            "module:callable of your own",
        ),
        (
            {"data": "imagenet"},
            "data: unknown data set 'imagenet'; known: digits, mnist, fashion_mnist, "
            "cifar10, cifar100, femnist, sent140, or "
            "module:callable of your own",
        ),
        (
            {"data": {"partition": "idd"}},
            "data.partition: unknown partition 'idd'; did you mean 'iid'? known: iid, shards, "
            "dirichlet, label_skew, lognormal, dirichlet_mix, class_window, natural",
        ),
        (
            {"data": {"partition": {"alpha": 1}}},
            "data.partition.alpha: unknown key; it is a key of dirichlet and dirichlet_mix, not of "
            "iid (known keys: name)",
        ),
        (
            {"data": {"partition": 5}},
            "data.partition: got 5; must be a name or a mapping of keys: iid, shards, dirichlet, "
            "label_skew, lognormal, dirichlet_mix, class_window, natural",
        ),
        ({"model": "a:b:c"}, "model: got 'a:b:c'; must be of the form module:callable"),
        (
            {"power": None},
            f"power: got null; must be a name or a mapping of keys: {POLICIES}",
        ),
        ({"power": {"name": 3}}, f"power.name: got 3; must be a name: {POLICIES}"),
        ({"modle": "mlp"}, f"modle: unknown key; did you mean 'model'? {TOP}"),
        ({"snr_db": 3}, f"snr_db: unknown key; did you mean 'channel.snr_db'? {TOP}"),
        ({"zzz": 3}, f"zzz: unknown key {TOP}"),
        ({"devices": {"count": -3}}, "devices.count: got -3; must be greater than or equal to 1"),
        ({"devices": {"count": 2.5}}, "devices.count: got 2.5; must be a whole number"),
        ({"devices": {"count": "ten"}}, "devices.count: got 'ten'; must be a whole number"),
        (
            {"devices": {"late": "nxt"}},
            "devices.late: got 'nxt'; must be 'drop' or 'next'; did you mean 'next'?",
        ),
        ({"devices": [1]}, "devices: got [1]; must be a mapping of keys"),
        ({"training": None}, "training: got null; must be a mapping of keys"),
        ({"trials": True}, "trials: got true; must be a number"),
        ({"channel": {"snr_db": False}}, "channel.snr_db: got false; must be a number"),
        ({"model": {"hidden": [True]}}, "model.hidden[0]: got true; must be a number"),
        (
            {"output": {"save_link": "maybe"}},
            "output.save_link: got 'maybe'; must be true or false",
        ),
        ({"channel": {"snr_db": float("inf")}}, "channel.snr_db: got inf; must be a finite number"),
        ({"model": {"hidden": []}}, "model.hidden: got []; must be a list of at least 1"),
        ({"model": {"hidden": 3}}, "model.hidden: got 3; must be a list"),
        (
            {"model": {"hidden": [3, 0]}},
            "model.hidden[1]: got 0; must be greater than or equal to 1",
        ),
        (
            {"algorithm": {"name": "fedrlr", "rank": -1}},
            "algorithm.rank: got -1; must be greater than or equal to 1",
        ),
        (
            {"algorithm": {"name": "fedrlr", "rank": [4, -1]}},
            "algorithm.rank[1]: got -1; must be greater than or equal to 1",
        ),
        (
            {"algorithm": {"name": "fedrlr", "rank": {"a": 1}}},
            "algorithm.rank: got {'a': 1}; must be a whole number or a list",
        ),
        (
            {"algorithm": {"name": "fedrlr", "c1": 3}},
            "algorithm: c1 must be below 1 (Lemma 2), got 3",
        ),
        (
            {"channel": {"snr_db": 3, "path_loss_db": 80}},
            "channel: snr_db and path_loss_db are two ways to say the same thing; give one of them",
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
            {"devices": {"compute": {"name": "classes", "classes": [1e9, -1]}}},
            "devices.compute.classes[1]: got -1; must be greater than 0",
        ),
        (
            {"training": {"stop_at": {"test_acc": 0.5}}},
            "training.stop_at.test_acc: unknown key; did you mean 'test_accuracy'? (known keys: "
            "test_accuracy, local_test_accuracy, personal_test_accuracy, "
            "personal_own_test_accuracy, validation_accuracy)",
        ),
        (
            {"training": {"stop_at": {"test_accuracy": 90}}},
            "training.stop_at.test_accuracy: got 90; must be less than or equal to 1",
        ),
        ({"name": 3}, "name: got 3; must be text"),
        (
            {"name": "a/b"},
            "name: got 'a/b'; must be letters, digits, '_', '-' and '.', as files are named after "
            "it",
        ),
    ],
)
def test_one_fault(tree: dict[str, Any], said: str) -> None:
    assert lines(tree) == [said]


def test_a_name_must_be_given() -> None:
    with pytest.raises(ScenarioError) as error:
        load_scenario({})
    assert str(error.value) == "name: must be given"


# ---- between sections --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"devices": {"count": 10, "participants": 12}},
            "devices.participants: got 12, more than devices.count (10); leave it out for all "
            "devices",
        ),
        (
            {"devices": {"late": "next"}},
            "devices.late: 'next' needs devices.deadline_s: without a deadline the slot waits for "
            "everyone and nobody is late",
        ),
        (
            {"training": {"stop_at": {"validation_accuracy": 0.9}}},
            "training.stop_at.validation_accuracy: there are no validation samples; set "
            "data.validation, e.g. to 0.1",
        ),
        (
            {
                "data": "mnist",
                "model": {"hidden": [256]},
                "algorithm": {"name": "fedrlr", "rank": 300},
            },
            "algorithm.rank: 300 is above the smaller side of every layer (784x256: 256, "
            "256x10: 10); at most 256",
        ),
        (
            {"model": "softmax_regression", "algorithm": {"name": "fedrlr", "rank": 11}},
            "algorithm.rank: 11 is above the smaller side of every layer (64x10: 10); at most 10",
        ),
        (
            {"algorithm": {"name": "fedrlr", "rank": [3]}},
            "algorithm.rank: got [3] for 2 layers (64x100: 64, 100x10: 10); give one for each, or "
            "one number for all",
        ),
        (
            {"algorithm": {"name": "fedrlr", "rank": [3, 20]}},
            "algorithm.rank[1]: 20 is above the smaller side of its layer, 100x10; at most 10",
        ),
    ],
)
def test_sections_that_do_not_fit(tree: dict[str, Any], said: str) -> None:
    assert lines(tree) == [said]


@pytest.mark.parametrize(
    "tree",
    [
        {"algorithm": {"name": "fedrlr", "rank": 64}},
        {"algorithm": {"name": "fedrlr", "rank": [64, 10]}},
        {"algorithm": {"name": "fedrlr", "rank": 900}, "model": "my:Net"},
        {"algorithm": {"name": "fedrlr", "rank": 900}, "data": "my:load"},
        {"devices": {"participants": 10}},
        {"devices": {"late": "next", "deadline_s": 1}},
        {"training": {"stop_at": {"validation_accuracy": 0.9}}, "data": {"validation": 0.1}},
        {"training": {"rounds": 3, "eval_every": 10}},
    ],
)
def test_sections_that_just_fit(tree: dict[str, Any]) -> None:
    assert isinstance(load_scenario({"name": "x", **tree}), Scenario)


def test_a_method_that_needs_each_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedAvgConfig, "needs", "each")
    assert lines({}) == [
        "transport: 'over_the_air' gives the server only the mean of the updates, but algorithm "
        "'fedavg' needs each of them; transports that would do: ideal, digital"
    ]
    assert load_scenario({"name": "x", "transport": "digital"}).transport.name == "digital"


# ---- files -------------------------------------------------------------------------------------


def test_every_fault_is_said_with_its_place_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """name: x
zz: 1
power:
  name: tci
  treshold: 0.2
devices: {count: -3, compute: {name: phon}}
model: {hidden: [3, 0]}
"""
    assert lines_of_file(tmp_path, text) == [
        f"quickstart.yaml:2:1: zz: unknown key {TOP}",
        "quickstart.yaml:5:3: power.treshold: unknown key; did you mean 'threshold'? (known keys: "
        "name, threshold, relative, reference, count_policy_power, constraint, gamma)",
        "quickstart.yaml:6:11: devices.count: got -3; must be greater than or equal to 1",
        "quickstart.yaml:6:32: devices.compute.name: unknown compute 'phon'; did you mean 'phone'? "
        "known: fixed, lognormal, classes, drawn, csv, mcu, phone, edge_gpu",
        "quickstart.yaml:7:21: model.hidden[1]: got 0; must be greater than or equal to 1",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "quickstart.yaml: is empty; a scenario begins like 'name: my_run'"),
        ("# nothing\n", "quickstart.yaml: is empty; a scenario begins like 'name: my_run'"),
        (
            "- a\n",
            "quickstart.yaml:1:1: is a list; a scenario is a mapping of keys, like 'name: my_run'",
        ),
        (
            "hello\n",
            "quickstart.yaml:1:1: is a single value; a scenario is a mapping of keys, like "
            "'name: my_run'",
        ),
        (
            "name: x\ndevices:\n  count: 3\n  count: 4\n",
            "quickstart.yaml:4:3: the key 'count' is given twice, first in line 3; keep one",
        ),
        ("name: x\n1: y\n", "quickstart.yaml:2:1: bad YAML: the key '1' is not text; quote it"),
        (
            "name: x\n? [a]\n: y\n",
            "quickstart.yaml:2:3: bad YAML: the key is not text; quote it",
        ),
        (
            "name: x\nmodel: [1\n",
            "quickstart.yaml:3:1: bad YAML: while parsing a flow sequence: expected ',' or ']', "
            "but got '<stream end>'",
        ),
        (
            "name: x\npower: a: b\n",
            "quickstart.yaml:2:9: bad YAML: mapping values are not allowed here",
        ),
        (
            "name: x\n\tseed: 1\n",
            "quickstart.yaml:2:1: bad YAML: while scanning for the next token: found character "
            "'\\t' that cannot start any token",
        ),
        ("name: x\nseed: *a\n", "quickstart.yaml:2:7: bad YAML: found undefined alias 'a'"),
        (
            "name: x\nseed: &a [*a]\n",
            "quickstart.yaml:2:7: bad YAML: an alias that contains itself",
        ),
        (
            "name: x\nseed: !!python/name:os.system\n",
            "quickstart.yaml:2:7: bad YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/name:os.system'",
        ),
        ("name: \x01\n", "quickstart.yaml:1:7: bad YAML: the character U+0001 is not allowed"),
        ("seed: 1\n", "quickstart.yaml: name: must be given"),
    ],
)
def test_a_file_that_is_no_scenario(tmp_path: Path, text: str, said: str) -> None:
    assert lines_of_file(tmp_path, text) == [said]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"no\.yaml: cannot be read \(No such file"):
        load_scenario(tmp_path / "no.yaml")
    with pytest.raises(ScenarioError, match=r"cannot be read \(Is a directory\)"):
        load_scenario(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9t\xe9\n")
    with pytest.raises(ScenarioError, match=r"latin\.yaml: is no UTF-8 text \(byte 6\)"):
        load_scenario(tmp_path / "latin.yaml")


def test_nesting_without_end_is_refused(tmp_path: Path) -> None:
    said = lines_of_file(tmp_path, "name: x\nseed: " + "[" * 5000 + "]" * 5000)
    assert said == ["quickstart.yaml: bad YAML: nested too deeply"]


# ---- overrides ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("seed", "--set seed: must be of the form key=value, like channel.snr_db=10"),
        ("=3", "--set =3: must be of the form key=value, like channel.snr_db=10"),
        ("seed=-1", "--set seed=-1: seed: got -1; must be greater than or equal to 0"),
        ("trials.x=3", "--set trials.x=3: 'trials' has no keys of its own"),
        ("seed.x=3", "--set seed.x=3: seed: got {'x': 3}; must be a whole number"),
        (
            "seed=[1",
            "--set seed=[1: bad YAML: while parsing a flow sequence: expected ',' or ']', but got "
            "'<stream end>'",
        ),
        (
            "power.treshold=1",
            "--set power.treshold=1: power.treshold: unknown key; did you mean 'threshold'? (known "
            "keys: name, threshold, relative, reference, count_policy_power, constraint, gamma)",
        ),
        ("zz.y=1", f"--set zz.y=1: zz: unknown key {TOP}"),
        (
            "channel.snr_db=2",
            "--set channel.snr_db=2: this key is swept; say sweep.channel.snr_db=[...], or "
            "sweep={} for no sweep",
        ),
    ],
)
def test_an_override(tmp_path: Path, override: str, said: str) -> None:
    text = "name: x\ntrials: 2\npower: tci\nsweep: {channel.snr_db: [1, 2]}\n"
    assert lines_of_file(tmp_path, text, override) == [said]


def test_a_fault_of_the_file_is_not_laid_to_an_override(tmp_path: Path) -> None:
    text = "name: x\ndevices:\n  count: 0\n"
    assert lines_of_file(tmp_path, text, "devices.participants=1", "seed=x") == [
        "quickstart.yaml:3:3: devices.count: got 0; must be greater than or equal to 1",
        "--set seed=x: seed: got 'x'; must be a whole number",
    ]


# ---- sweeps ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        (
            {"channel.snrdb": [1]},
            "sweep: 'channel.snrdb' is no key of a scenario; did you mean 'channel.snr_db'?",
        ),
        (
            {"snr_db": [1]},
            "sweep: 'snr_db' is no key of a scenario; did you mean 'channel.snr_db'?",
        ),
        ({"qqqq": [1]}, "sweep: 'qqqq' is no key of a scenario"),
        (
            {"power": [3]},
            "sweep: power: got 3; must be names, or mappings with a name and settings",
        ),
        (
            {"power": [{"threshold": 1}]},
            "sweep: power: got {'threshold': 1}; must be names, or mappings with a name and "
            "settings",
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
            {"engine.dtype": ["float64"]},
            "sweep: 'engine.dtype' cannot be swept: it does not change what a trial computes",
        ),
        (
            {"channel.snr_db": 3},
            "sweep: channel.snr_db: got 3; must be a list of at least one value",
        ),
        (
            {"channel.snr_db": []},
            "sweep: channel.snr_db: got []; must be a list of at least one value",
        ),
        ({"channel.snr_db": [1, 1.0]}, "sweep: channel.snr_db: 1 is listed twice; keep one"),
        ({"power": ["ci", {"name": "ci"}]}, "sweep: power: 'ci' is listed twice; keep one"),
        (
            {"power": ["ci"], "power.name": ["tci"]},
            "sweep: 'power' and 'power.name' set the same key; keep one",
        ),
        (
            {"seed": [1], "zip": [{"seed": 1}]},
            "sweep: 'seed' and 'seed' set the same key; keep one",
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
            {"zip": [{"sed": 1}]},
            "sweep: 'sed' is no key of a scenario; did you mean 'seed'?",
        ),
        (
            {"power": ["gbam"]},
            "sweep: power=gbam: power: unknown power policy 'gbam'; did you mean 'gbma'? known: "
            f"{POLICIES}, or module:callable of your own",
        ),
        (
            {"channel.snr_db": [1, "a"]},
            "sweep: channel.snr_db=a: channel.snr_db: got 'a'; must be a number",
        ),
        (
            {"channel.snr_db": [2, True]},
            "sweep: channel.snr_db=true: channel.snr_db: got true; must be a number",
        ),
        (
            {"power.threshold": [0.1]},
            "sweep: power.threshold=0.1: power.threshold: unknown key; it is a key of tci, not of "
            "gbma (known keys: name, gain_target, reference, gamma)",
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
    assert lines({"sweep": sweep}) == [said]


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
    assert lines_of_file(tmp_path, text) == [
        "quickstart.yaml:6:7: sweep: devices.count=10: devices.participants: got 20, more than "
        "devices.count (10); leave it out for all devices",
        "quickstart.yaml:10:17: sweep: algorithm.name=fedrl: algorithm: unknown algorithm 'fedrl'; "
        f"did you mean 'fedrlr'? known: {', '.join(registry.names('algorithm'))}, or "
        "module:callable of your own",
    ]


def test_a_fault_that_no_axis_changes_is_said_once() -> None:
    tree = {"devices": {"participants": 20}, "sweep": {"seed": [1, 2, 3]}}
    assert lines(tree) == [
        "devices.participants: got 20, more than devices.count (10); leave it out for all devices"
    ]


def test_faults_of_sections_and_of_the_sweep_are_said_together() -> None:
    tree = {"seed": -1, "sweep": {"channel.snrdb": [1], "channel.snr_db": 4}}
    assert len(lines(tree)) == 3


def test_expanding_a_scenario_that_was_made_by_hand_checks_it_too() -> None:
    with pytest.raises(ScenarioError, match=r"'channel\.snrdb' is no key"):
        expand(Scenario(name="x", sweep={"channel.snrdb": [1]}))
    with pytest.raises(ScenarioError, match=r"devices\.late: 'next' needs"):
        expand(Scenario.model_validate({"name": "x", "devices": {"late": "next"}}))
