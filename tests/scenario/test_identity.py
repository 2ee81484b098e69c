"""Hashes and stacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import pytest
from support.scenarios import LARGE, ROOT, SCENARIO_FILES, make_scenario

from otafl.core.settings import Settings
from otafl.scenario import (
    compute_scenario_hash,
    describe_scenario,
    expand,
    is_same,
    load_scenario,
    make_stack_key,
    restore_tree,
    to_yaml,
)
from otafl.scenario.yaml_source import dump, parse

pytestmark = pytest.mark.exact

STUDIES = ROOT / "studies"


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
    assert (make_stack_key(make_scenario()) == make_stack_key(make_scenario(**change))) is together


DRAWS = ("harvest", "circuit", "receive", "idle", "sleep")


def stackable_values(settings: Settings, prefix: str = "") -> dict[str, float]:
    """`section.field` -> value of every stackable field that has one."""
    found = {}
    for name, value in settings:
        if name in settings.stackable_names and value is not None:
            found[f"{prefix}{name}"] = float(value)
        elif isinstance(value, Settings):
            found |= stackable_values(value, f"{prefix}{name}.")
    return found


def test_stackable_values() -> None:
    got = stackable_values(
        make_scenario(
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
        "channel.snr_growth": 0.0,
        "channel.tx_power_dbm": 20.0,
        "channel.bandwidth_hz": 1e6,
        "channel.noise_figure_db": 5.0,
        "power.threshold": 0.2,
        "impairments.residual_phase_rad": 0.0,
        "impairments.carrier_offset": 0.0,
        "impairments.timing_offset": 0.0,
        "impairments.adc_range": 3.0,
        "impairments.tail_index": 1.5,
        "robust.assumed_share": 0.2,
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
        "privacy.delta": 1e-5,
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
        ({"channel": {"snr_db": 20}}, True),  # which holds without it
        ({"channel": {"snr_db": 19}}, False),
        ({"channel": {"path_loss_db": 0}}, False),
        ({"sweep": {"seed": [0]}}, False),
    ],
)
def test_scenario_hash(change: dict[str, Any], same: bool) -> None:
    assert (
        compute_scenario_hash(make_scenario()) == compute_scenario_hash(make_scenario(**change))
    ) is same


def test_the_order_of_axes_is_part_of_the_hash() -> None:
    one = {"seed": [1, 2], "channel.snr_db": [0, 10]}
    other = dict(reversed(one.items()))
    assert compute_scenario_hash(make_scenario(sweep=one)) != compute_scenario_hash(
        make_scenario(sweep=other)
    )


BEFORE = {
    "fedrlr/fedrlr_fig5": "93f796fb17427cea",
    "fedrlr/fedrlr_fig6": "d18e420a4a79ed43",
    "fedrlr/fedrlr_fig7": "dc666e538ab66ec0",
    "fedrlr/fedrlr_fig8": "1bed111ad7586fb2",
    "fedrlr/fedrlr_fig9": "3f0a85b9a8df5b31",
    "fedrlr/fedrlr_fig9_l1": "fc2363b4dfb01026",
    "fedrlr/fedrlr_fig9_nuclear": "eb8485b9eb8938de",
    "fedrlr/fedrlr_grid": "b2226a78a96f7983",
    "on_device/on_device": "99c8b3499966b663",
}
"""Hashes, when the defaults of these scenarios' methods were the paper's."""


@pytest.mark.parametrize("name", BEFORE)
def test_a_scenario_that_states_the_former_defaults_keeps_its_hash(name: str) -> None:
    assert compute_scenario_hash(load_scenario(STUDIES / f"{name}.yaml")).startswith(BEFORE[name])


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(path, id=path.name, marks=() if is_next else pytest.mark.slow)
        for turn, path in enumerate(sorted(STUDIES.glob("*/data/*.nc")))
        for is_next in [path.stem not in LARGE and turn % 3 == 0]
    ],
)
def test_committed_results_are_of_todays_scenarios(file: Path) -> None:
    with h5py.File(file) as opened:
        stored = dict(opened.attrs)
    (path,) = (path for path in SCENARIO_FILES if path.stem == stored["title"])
    assert is_same(stored, describe_scenario(load_scenario(path)))


FORMER = {"name": "fedrlr", "q": 2, "inv_k_gradient": True}


def test_a_default_that_changed_changes_the_hash_of_who_relies_on_it() -> None:
    """By the first defaults, given, hashes are those of scenarios of before, which gave none."""
    now, first = make_scenario(algorithm="fedrlr"), make_scenario(algorithm=FORMER)
    assert compute_scenario_hash(now) != compute_scenario_hash(first)
    assert compute_scenario_hash(first).startswith("b46bf4999bbbfb38")
    for key in ("algorithm", "algorithm.name"):
        bare, given = (make_scenario(sweep={key: ["fedavg", one]}) for one in ("fedrlr", FORMER))
        assert compute_scenario_hash(bare) != compute_scenario_hash(given)
        assert compute_scenario_hash(bare, former=True) != compute_scenario_hash(bare)
        assert compute_scenario_hash(given, former=True) == compute_scenario_hash(given)
    old = make_scenario(sweep={"algorithm": ["fedavg", {"name": "fedrlr"}]})
    new = make_scenario(sweep={"algorithm": ["fedavg", FORMER]})
    assert compute_scenario_hash(old, former=True) == compute_scenario_hash(new)
    other = make_scenario(
        sweep={"algorithm": ["fedavg", {"name": "fedprox", "learning_rate": 0.01}]}
    )
    assert compute_scenario_hash(other, former=True) == compute_scenario_hash(other)


@pytest.mark.parametrize("joint", [False, True])
def test_what_axes_chose_before_a_default_changed_has_the_first(joint: bool) -> None:
    def swept(section: Any) -> Any:
        axis: Any = {"algorithm": ["fedavg", section]}
        if joint:
            axis = {"zip": [{"algorithm": one, "seed": 1} for one in axis["algorithm"]]}
        return make_scenario(sweep=axis)

    bare, given = swept({"name": "fedrlr"}), swept(FORMER)
    old = {"scenario": to_yaml(bare), "scenario_hash": compute_scenario_hash(bare, former=True)}
    assert is_same(old, describe_scenario(given))
    assert not is_same(old, describe_scenario(bare))
    assert not is_same(old | {"scenario_hash": "of another reckoning"}, describe_scenario(bare))
    assert is_same(old | {"scenario_hash": "of another reckoning"}, describe_scenario(given))
    rates = {"now": 200.0, "then": 2.0}
    for stored, when in ((describe_scenario(bare), "now"), (old, "then")):
        restored = load_scenario(restore_tree(stored))
        _, point = expand(restored)
        assert point.scenario.algorithm.q == rates[when]
        assert point.scenario.algorithm.inv_k_gradient is (when == "then")
        assert is_same(stored, describe_scenario(restored))


@pytest.mark.parametrize("key", ["algorithm", "algorithm.name"])
def test_the_filled_in_section_below_an_axis_of_an_older_file_has_no_effect(key: str) -> None:
    """Earlier versions stored the defaults of a section that an axis replaced."""
    names = ["fedavg", "ditto"]
    once = load_scenario({"name": "s", "sweep": {key: names}})
    tree = parse(to_yaml(once)).data
    tree["algorithm"] = load_scenario({"name": "s"}).algorithm.model_dump(mode="json")
    for stored_keys in (tree["algorithm"], {"name": "fedavg", "learning_rate": 0.1, "decay": 0.0}):
        text = dump(tree | {"algorithm": stored_keys})
        stored = {"scenario": text, "scenario_hash": compute_scenario_hash(once)}
        points = expand(load_scenario(restore_tree(stored)))
        assert [point.scenario.algorithm.learning_rate for point in points] == [0.1, 0.01]
    whole = expand(load_scenario(tree))
    assert [point.scenario.algorithm.learning_rate for point in whole] == [0.1, 0.01]
