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
    is_same,
    load_scenario,
    make_stack_key,
    restore_tree,
)
from otafl.scenario.writing import to_tree

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


def test_components_of_an_axis_count_with_their_defaults() -> None:
    """Text and mapping of a component are one, and so are a default that is given and one that is
    not; another value is not.
    """
    rate = load_scenario({"name": "s", "algorithm": "fedprox"}).algorithm.learning_rate
    texts, named, given, other = (
        make_scenario(sweep={"algorithm": ["fedavg", one]})
        for one in (
            "fedprox",
            {"name": "fedprox"},
            {"name": "fedprox", "learning_rate": rate},
            {"name": "fedprox", "learning_rate": 2 * rate},
        )
    )
    assert compute_scenario_hash(texts) == compute_scenario_hash(named)
    assert compute_scenario_hash(texts) == compute_scenario_hash(given)
    assert compute_scenario_hash(texts) != compute_scenario_hash(other)


def test_a_hash_of_another_version_is_compared_by_the_stored_scenario() -> None:
    one, other = make_scenario(), make_scenario(seed=1)
    stored = describe_scenario(one) | {"scenario_hash": "of another version"}
    assert is_same(stored, describe_scenario(one))
    assert not is_same(stored, describe_scenario(other))
    assert restore_tree(stored) == to_tree(one)
