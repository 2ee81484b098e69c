"""Scenarios: defaults, YAML, overrides, sweeps, stacks and hashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otafl.algorithms.config import FedRLRConfig
from otafl.channels.config import AwgnConfig, RayleighConfig
from otafl.core import registry
from otafl.data.config import CustomDataConfig, DirichletConfig, LabelSkewConfig
from otafl.models.config import CustomModelConfig, MlpConfig
from otafl.power.config import GbmaConfig, TciConfig
from otafl.scenario import (
    Scenario,
    axes_of,
    expand,
    json_schema,
    load_scenario,
    scenario_hash,
    stack_key,
    stackable_values,
    to_yaml,
)
from otafl.scenario.yaml_source import dump, parse

SCENARIOS = Path(__file__).parents[2] / "scenarios"

FULL = """
name: gbma_vs_ci
data: {name: fashion_mnist, partition: {name: label_skew, classes_per_device: 2}}
model: {name: mlp, hidden: [256, 256]}
algorithm: {name: fedrlr, rank: 4}
channel: {name: rayleigh, snr_db: 25}
csi: {name: perfect}
power: {name: gbma}
transport: {name: over_the_air}
devices: {count: 10, participants: 10, compute: {name: phone}}
training: {rounds: 1500, local_steps: 1, batch_size: 6, eval_every: 25}
trials: 10
seed: 0
sweep:
  channel.snr_db: [0, 10, 20]
  devices.count: [10, 50]
  power.name: [gbma, ci, tci, full]
"""


def scenario(**keys: Any) -> Scenario:
    return load_scenario({"name": "x", **keys})


def written(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return path


# ---- reading ---------------------------------------------------------------------------------


def test_a_whole_file(tmp_path: Path) -> None:
    got = load_scenario(written(tmp_path, FULL))
    assert got.data.partition == LabelSkewConfig(classes_per_device=2)
    assert got.model == MlpConfig(hidden=(256, 256))
    assert got.algorithm == FedRLRConfig(rank=4)
    assert got.channel == RayleighConfig(snr_db=25)
    assert got.training.rounds == 1500
    assert got.trials == 10
    assert list(got.sweep) == ["channel.snr_db", "devices.count", "power.name"]


def test_a_name_is_enough() -> None:
    got = scenario()
    assert (got.data.name, got.model.name, got.algorithm.name) == ("digits", "mlp", "fedavg")
    assert (got.channel.name, got.csi.name, got.power.name) == ("rayleigh", "perfect", "gbma")
    assert (got.codec.name, got.transport.name) == ("identity", "over_the_air")
    assert (got.devices.count, got.devices.participants) == (10, None)
    assert (got.devices.compute.name, got.devices.late) == ("phone", "drop")
    assert (got.devices.deadline_s, got.devices.downlink_rate_bps) == (None, 1e7)
    assert (got.training.rounds, got.training.eval_every, got.training.batch_size) == (100, 10, 20)
    assert (got.trials, got.seed, got.sweep) == (1, 0, {})
    assert (got.engine.memory_gb, got.engine.chunk_mb, got.engine.dtype) == (2.0, 96.0, "float32")
    assert (got.output.folder, got.output.save_link) == ("results", False)


def test_a_plain_name_and_a_section_without_a_name() -> None:
    got = scenario(power="tci", channel={"snr_db": 5}, data={"partition": "dirichlet"})
    assert got.power == TciConfig()
    assert got.channel == RayleighConfig(snr_db=5)
    assert got.data.partition == DirichletConfig()


def test_components_of_the_users_own_keep_their_keys() -> None:
    got = scenario(
        data={"name": "my.data:load", "folder": "here", "partition": "iid"},
        model={"name": "my.nets:Net", "width": 3},
    )
    assert isinstance(got.data, CustomDataConfig)
    assert got.data.options == {"folder": "here"}
    assert isinstance(got.model, CustomModelConfig)
    assert got.model.options == {"width": 3}
    assert scenario(model="my.nets:Net").model.options == {}


def test_numbers_of_numpy_and_tuples_are_taken_from_a_mapping() -> None:
    got = scenario(
        model={"hidden": (np.int64(3), 4)}, sweep={"channel.snr_db": np.array([0.0, 2.5])}
    )
    assert got.model.hidden == (3, 4)
    assert got.sweep == {"channel.snr_db": [0.0, 2.5]}
    assert load_scenario(parse(to_yaml(got)).data) == got


def test_loading_leaves_the_mapping_alone() -> None:
    tree = {"name": "x", "power": "tci", "channel": {"snr_db": 1}}
    load_scenario(tree, ["power.threshold=0.3", "channel.snr_db=3"])
    assert tree == {"name": "x", "power": "tci", "channel": {"snr_db": 1}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-4", 5e-4),
        ("1e7", 1e7),
        ("-2.5E+3", -2500.0),
        (".5", 0.5),
        ("010", 10),
        ("1_000", 1000),
        ("0x1F", 31),
        ("12:30", "12:30"),
        ("on", "on"),
        ("no", "no"),
        ("2024-01-01", "2024-01-01"),
        ("true", True),
        ("~", None),
        ("", None),
        ("'5e-4'", "5e-4"),
        ("1e", "1e"),
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


# ---- overrides -------------------------------------------------------------------------------


def test_overrides(tmp_path: Path) -> None:
    got = load_scenario(
        written(tmp_path, "name: x\npower: tci\ntraining:\n"),
        [
            "power.threshold=5e-1",
            "channel.snr_db=3",
            "model.hidden=[8, 9]",
            "training.rounds=7",
            "devices.compute=fixed",
            "devices.compute.flops_per_s=2e9",
            "csi={name: error, variance: 0.2}",
        ],
    )
    assert got.power == TciConfig(threshold=0.5)
    assert got.channel == RayleighConfig(snr_db=3)
    assert got.model.hidden == (8, 9)
    assert got.training.rounds == 7
    assert got.devices.compute.flops_per_s == 2e9
    assert got.csi.variance == 0.2


def test_overrides_of_the_sweep(tmp_path: Path) -> None:
    path = written(tmp_path, FULL)
    assert load_scenario(path, ["sweep={}"]).sweep == {}
    got = load_scenario(path, ["sweep.channel.snr_db=[7]", "sweep.algorithm.rank=[1, 2]"])
    assert got.sweep["channel.snr_db"] == [7]
    assert got.sweep["algorithm.rank"] == [1, 2]
    assert len(expand(got)) == 1 * 2 * 4 * 2


# ---- sweeps ----------------------------------------------------------------------------------


def test_no_sweep_is_one_point() -> None:
    one = scenario(power="ci")
    (point,) = expand(one)
    assert (point.index, point.coords, point.scenario) == (0, {}, one)
    assert axes_of(one) == {}


def test_points_are_in_c_order_over_the_axes_of() -> None:
    swept = scenario(sweep={"channel.snr_db": [0, 10], "power.name": ["gbma", "ci", "tci"]})
    points = expand(swept)
    assert [point.index for point in points] == list(range(6))
    assert [point.coords for point in points][:4] == [
        {"snr_db": 0, "power": "gbma"},
        {"snr_db": 0, "power": "ci"},
        {"snr_db": 0, "power": "tci"},
        {"snr_db": 10, "power": "gbma"},
    ]
    assert points[5].scenario.channel.snr_db == 10
    assert points[5].scenario.power == TciConfig()
    assert all(point.scenario.sweep == {} for point in points)


def test_axes_have_units_and_names() -> None:
    swept = scenario(
        sweep={
            "channel.snr_db": [0, 10],
            "channel.bandwidth_hz": [1e6],
            "devices.count": [10, 50],
            "devices.deadline_s": [1.5],
            "power": ["gbma", {"name": "tci", "threshold": 0.2}],
            "data.partition": ["iid", {"name": "dirichlet", "alpha": 0.1}],
            "algorithm.learning_rate": [0.1],
            "devices.participants": [5],
        }
    )
    found = axes_of(swept)
    assert list(found) == [
        "snr_db",
        "bandwidth_hz",
        "device_count",
        "deadline_s",
        "power",
        "partition",
        "learning_rate",
        "devices_participants",
    ]
    assert [axis.units for axis in found.values()] == ["dB", "Hz", "1", "s", "", "", "1", "1"]
    assert found["snr_db"].long_name == "normalised SNR"
    assert found["device_count"].long_name == "devices in the population"
    assert found["snr_db"].keys == ("channel.snr_db",)
    assert found["power"].long_name == "power policy"
    assert found["power"].values == ("gbma", "tci(threshold=0.2)")
    assert found["partition"].values == ("iid", "dirichlet(alpha=0.1)")
    assert found["snr_db"].coords == {"snr_db": found["snr_db"]}


def test_a_choice_replaces_its_section_and_other_axes_set_its_keys() -> None:
    swept = scenario(
        power={"name": "gbma", "gain_target": "energy"},
        sweep={"power.threshold": [0.1, 0.3], "power.name": ["tci"]},
    )
    assert [point.scenario.power for point in expand(swept)] == [
        TciConfig(threshold=0.1),
        TciConfig(threshold=0.3),
    ]
    swept = scenario(power={"name": "gbma", "gain_target": "energy"}, sweep={"power": ["gbma"]})
    assert expand(swept)[0].scenario.power == GbmaConfig(gain_target="auto")
    swept = scenario(channel={"snr_db": 7}, sweep={"channel": ["awgn"], "channel.snr_db": [3]})
    assert expand(swept)[0].scenario.channel == AwgnConfig(snr_db=3)


def test_a_data_set_and_its_partition_are_two_axes_of() -> None:
    swept = scenario(sweep={"data.partition.name": ["iid", "shards"], "data": ["mnist", "digits"]})
    names = [(p.scenario.data.name, p.scenario.data.partition.name) for p in expand(swept)]
    assert names == [("mnist", "iid"), ("digits", "iid"), ("mnist", "shards"), ("digits", "shards")]
    assert list(axes_of(swept)) == ["partition", "data"]


def test_dims_that_collide_are_named_after_their_sections() -> None:
    swept = scenario(
        model={"name": "my:Net"},
        sweep={"model.threshold": [1, 2], "power.threshold": [0.1, 0.2], "power.name": ["tci"]},
    )
    assert list(axes_of(swept)) == ["model_threshold", "power_threshold", "power"]
    assert expand(swept)[3].coords == {
        "model_threshold": 2,
        "power_threshold": 0.2,
        "power": "tci",
    }


def test_zip_advances_its_keys_together() -> None:
    swept = scenario(
        sweep={
            "seed": [3, 4],
            "zip": [
                {"devices.count": 10, "algorithm.name": "fedavg"},
                {"devices.count": 20, "algorithm.name": {"name": "fedrlr", "rank": 2}},
            ],
        }
    )
    points = expand(swept)
    assert [point.coords for point in points] == [
        {"seed": 3, "device_count": 10, "algorithm": "fedavg"},
        {"seed": 3, "device_count": 20, "algorithm": "fedrlr(rank=2)"},
        {"seed": 4, "device_count": 10, "algorithm": "fedavg"},
        {"seed": 4, "device_count": 20, "algorithm": "fedrlr(rank=2)"},
    ]
    assert points[3].scenario.algorithm == FedRLRConfig(rank=2)
    found = axes_of(swept)
    assert list(found) == ["seed", "zip"]
    assert found["zip"].values == (0, 1)
    assert found["zip"].keys == ("devices.count", "algorithm.name")
    assert list(found["zip"].coords) == ["device_count", "algorithm"]
    assert found["zip"].coords["device_count"].values == (10, 20)


def test_keys_of_the_users_own_component_can_be_swept() -> None:
    swept = scenario(model={"name": "my:Net", "width": 1}, sweep={"model.width": [2, 3]})
    assert [point.scenario.model.options["width"] for point in expand(swept)] == [2, 3]
    swept = scenario(sweep={"model.name": ["my:Net"], "model.depth": [2, 3]})
    assert [point.scenario.model.options["depth"] for point in expand(swept)] == [2, 3]


def test_only_points_must_agree_across_sections() -> None:
    swept = scenario(devices={"participants": 20}, sweep={"devices.count": [20, 50]})
    assert [point.scenario.devices.count for point in expand(swept)] == [20, 50]


def test_a_point_of_a_sweep_equals_the_scenario_written_out() -> None:
    swept = scenario(trials=3, sweep={"channel.snr_db": [0, 10], "power.name": ["gbma", "ci"]})
    alone = scenario(trials=3, channel={"name": "rayleigh", "snr_db": 10}, power="ci")
    assert expand(swept)[3].scenario == alone


# ---- stacks and hashes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "together"),
    [
        ({"channel": {"snr_db": 3}}, True),
        ({"channel": {"path_loss_db": 80, "tx_power_dbm": 10}}, True),
        ({"algorithm": {"learning_rate": 0.7}}, True),
        ({"devices": {"deadline_s": 2.0}}, True),
        ({"devices": {"downlink_rate_bps": 1e6}}, True),
        ({"devices": {"compute": {"kappa": 1e-27}}}, True),
        ({"seed": 5}, True),
        ({"name": "y"}, True),
        ({"trials": 4}, True),
        ({"engine": {"threads": 1}}, True),
        ({"output": {"folder": "elsewhere"}}, True),
        ({"channel": "awgn"}, False),
        ({"power": "ci"}, False),
        ({"power": {"gain_target": "energy"}}, False),
        ({"algorithm": "fedrlr"}, False),
        ({"devices": {"count": 11}}, False),
        ({"devices": {"compute": "fixed"}}, False),
        ({"devices": {"late": "next", "deadline_s": 1}}, False),
        ({"training": {"rounds": 11}}, False),
        ({"data": {"partition": "shards"}}, False),
        ({"model": {"hidden": [3]}}, False),
        ({"codec": "uniform"}, False),
    ],
)
def test_stack_key(change: dict[str, Any], together: bool) -> None:
    assert (stack_key(scenario()) == stack_key(scenario(**change))) is together


DRAWS = ("harvest", "circuit", "receive", "idle", "sleep")


def test_stackable_values() -> None:
    got = stackable_values(
        scenario(
            channel={"name": "awgn", "snr_db": 3},
            power={"name": "tci", "threshold": 0.2},
            devices={"compute": "fixed", "deadline_s": 4},
        )
    )
    assert got == {
        "algorithm.learning_rate": 0.1,
        "algorithm.decay": 0.0,
        "algorithm.server_learning_rate": 1.0,
        "channel.snr_db": 3.0,
        "channel.tx_power_dbm": 20.0,
        "channel.bandwidth_hz": 1e6,
        "channel.noise_figure_db": 5.0,
        "power.threshold": 0.2,
        "impairments.residual_phase_rad": 0.0,
        "impairments.carrier_offset": 0.0,
        "impairments.timing_offset": 0.0,
        "impairments.adc_range": 3.0,
        "faults.byzantine": 0.0,
        "faults.scale": 1.0,
        "faults.crash_probability": 0.0,
        "faults.crash_downtime_s": 0.0,
        "faults.straggler_probability": 0.0,
        "faults.straggler_rounds": 5.0,
        "faults.straggler_factor": 4.0,
        "faults.fade_probability": 0.0,
        "faults.fade_db": 20.0,
        "faults.duplicate_probability": 0.0,
        "signalling.sync_symbols": 0.0,
        "signalling.feedback_symbols": 0.0,
        "devices.compute.jitter_scale": 0.5,
        "devices.compute.flops_per_cycle": 4.0,
        "devices.compute.kappa": 1e-28,
        "devices.compute.frequency_min_share": 1.0,
        "devices.compute.charge": 1.0,
        "devices.compute.restart": 0.1,
        **{f"devices.compute.{part}_w": 0.0 for part in DRAWS},
        "devices.compute.efficiency": 1.0,
        "devices.compute.power_db": 0.0,
        "devices.compute.flops_per_s": 6e9,
        "devices.deadline_s": 4.0,
        "devices.downlink_rate_bps": 1e7,
    }


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"name": "y"}, True),
        ({"engine": {"threads": 1, "device": "cpu"}}, True),
        ({"output": {"folder": "elsewhere"}}, True),
        ({"power": {"name": "gbma"}}, True),
        ({"devices": {"count": 10}}, True),
        ({"seed": 1}, False),
        ({"trials": 2}, False),
        ({"output": {"save_link": True}}, False),
        ({"channel": {"snr_db": 20}}, False),
        ({"sweep": {"seed": [0]}}, False),
    ],
)
def test_scenario_hash(change: dict[str, Any], same: bool) -> None:
    assert (scenario_hash(scenario()) == scenario_hash(scenario(**change))) is same


def test_the_order_of_axes_is_part_of_the_hash() -> None:
    one = {"seed": [1, 2], "channel.snr_db": [0, 10]}
    other = dict(reversed(one.items()))
    assert scenario_hash(scenario(sweep=one)) != scenario_hash(scenario(sweep=other))


# ---- writing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted(SCENARIOS.rglob("*.yaml")), ids=lambda path: path.name)
def test_filled_in_yaml_reads_back(file: Path, tmp_path: Path) -> None:
    once = load_scenario(file)
    again = load_scenario(written(tmp_path, to_yaml(once)))
    assert again == once
    assert scenario_hash(again) == scenario_hash(once)
    assert [stack_key(p.scenario) for p in expand(again)] == [
        stack_key(p.scenario) for p in expand(once)
    ]


def test_filled_in_yaml_shows_every_key() -> None:
    text = to_yaml(scenario(model={"hidden": [3, 4]}, channel={"snr_db": -2.5}))
    assert text.startswith("name: x\ndata:\n  name: digits\n  partition:\n    name: iid\n")
    assert "channel:\n  name: rayleigh\n  snr_db: -2.5\n  path_loss_db: null\n" in text
    assert "  hidden: [3, 4]\n" in text
    assert "sweep" not in text


def test_the_quickstart_runs_four_snrs_and_three_policies() -> None:
    quickstart = load_scenario(SCENARIOS / "quickstart.yaml")
    assert quickstart.data.name == "digits"
    assert [len(axis.values) for axis in axes_of(quickstart).values()] == [4, 3]
    assert len({stack_key(point.scenario) for point in expand(quickstart)}) == 3


def test_json_schema() -> None:
    schema = json_schema()
    definitions = schema["$defs"]
    power = schema["properties"]["power"]["anyOf"]
    assert power[0] == {"enum": list(registry.names("power"))}
    kinds = [one["$ref"].removeprefix("#/$defs/") for one in power[-1]["oneOf"]]
    classes = [registry.settings("power", name) for name in registry.names("power")]
    assert kinds == [*(one.__name__ for one in classes), "CustomPowerConfig"]
    assert definitions["TciConfig"]["properties"]["threshold"]["stackable"] is True
    assert definitions["TciConfig"]["properties"]["name"]["const"] == "tci"
    assert definitions["TciConfig"]["description"].startswith("Truncated channel inversion")
    # without a name a section is its default choice, and only that
    assert definitions["TciConfig"]["required"] == ["name"]
    assert "required" not in definitions["GbmaConfig"]
    assert definitions["RayleighConfig"]["additionalProperties"] is False
    assert definitions["CustomModelConfig"]["additionalProperties"] is True
    partition = definitions["DigitsConfig"]["properties"]["partition"]["anyOf"]
    assert partition[0] == {"enum": list(registry.names("partition"))}
    assert schema["required"] == ["name"]


def test_every_reference_of_the_json_schema_resolves() -> None:
    schema = json_schema()
    found = list(_references(schema))
    assert len(found) > 20
    assert {one.removeprefix("#/$defs/") for one in found} <= set(schema["$defs"])


def _references(tree: Any) -> Any:
    if isinstance(tree, dict):
        if isinstance(tree.get("$ref"), str):
            yield tree["$ref"]
        tree = list(tree.values())
    if isinstance(tree, list):
        for item in tree:
            yield from _references(item)
