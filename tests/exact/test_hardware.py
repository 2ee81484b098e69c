"""What devices are made of, against numbers worked by hand.

Mutations that make a test here fail: classes dealt out by blocks, a class's own number lost, or
given to the section; the highest frequency from the section's operations a cycle where the class
has its own; a share of the charge or of the restart forgotten; a battery on mains; a file's empty
cell as 0, its rows not round again, frequency and speed mixed up; preset numbers that do not add up
to the powers of their data sheets; a law's range not checked; jitter that costs joules, or that
is another in a stack.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract.small import engine, run, scenario
from pydantic import ValidationError

from otafl.core.errors import UserError
from otafl.devices.activities import CAUSES
from otafl.devices.config_drawn import CsvComputeConfig, DrawnComputeConfig
from otafl.devices.config_hardware import (
    QUANTITIES,
    ClassesComputeConfig,
    ComputeConfig,
    FixedComputeConfig,
    OwnQuantities,
)
from otafl.devices.config_presets import (
    EdgeGpuComputeConfig,
    McuComputeConfig,
    PhoneComputeConfig,
)
from otafl.devices.hardware import AnyComputeConfig, Hardware, devices_of
from otafl.scenario import load_scenario, to_yaml
from otafl.scenario.errors import ScenarioError
from otafl.scenario.yaml_source import parse


def of(config: AnyComputeConfig, devices: int = 1) -> Hardware:
    return devices_of(config, devices, np.random.default_rng(0))


def test_by_default_devices_are_on_mains_and_draw_nothing_beside_computing() -> None:
    one = of(FixedComputeConfig(flops_per_s=8e9, flops_per_cycle=4, kappa=2e-28), 3)
    assert one.flops_per_s.tolist() == [8e9] * 3
    assert one.frequency_hz.tolist() == one.frequency_min_hz.tolist() == [2e9] * 3
    assert one.kappa.tolist() == [2e-28] * 3
    for name in ("memory_mb", "battery_j", "charge_j"):
        assert getattr(one, name).tolist() == [np.inf] * 3, name
    for name in ("restart_j", "harvest_w", "circuit_w", "receive_w", "idle_w", "sleep_w"):
        assert getattr(one, name).tolist() == [0.0] * 3, name
    assert one.efficiency.tolist() == [1.0] * 3
    assert one.power_db.tolist() == [0.0] * 3
    assert one.mains


def test_every_part_can_be_given() -> None:
    one = of(
        FixedComputeConfig(
            frequency_min_share=0.25,
            memory_mb=64,
            battery_j=200,
            charge=0.5,
            restart=0.2,
            harvest_w=0.01,
            circuit_w=0.1,
            receive_w=0.2,
            idle_w=0.03,
            sleep_w=0.004,
            efficiency=0.4,
            power_db=-3,
        ),
        2,
    )
    assert one.frequency_min_hz.tolist() == [0.375e9] * 2
    assert one.memory_mb.tolist() == [64.0] * 2
    assert one.battery_j.tolist() == [200.0] * 2
    assert one.charge_j.tolist() == [100.0] * 2
    assert one.restart_j.tolist() == [40.0] * 2
    got = one.harvest_w, one.circuit_w, one.receive_w, one.idle_w, one.sleep_w
    assert [value[1] for value in got] == [0.01, 0.1, 0.2, 0.03, 0.004]
    assert one.efficiency.tolist() == [0.4] * 2
    assert one.power_db.tolist() == [-3.0] * 2
    assert not one.mains


def test_a_list_of_speeds_goes_to_the_devices_in_order_and_round_again() -> None:
    config = ClassesComputeConfig.model_validate({"classes": [5e9, 1e9, 3e9]})
    assert of(config, 7).flops_per_s.tolist() == [5e9, 1e9, 3e9, 5e9, 1e9, 3e9, 5e9]


def test_many_equal_classes_go_in_turn() -> None:
    """Seventy classes: no round-off in the shares may reorder them."""
    given = np.arange(1.0, 71.0)
    config = ClassesComputeConfig.model_validate({"classes": given.tolist()})
    assert np.array_equal(of(config, 140).flops_per_s, np.tile(given, 2))


def test_classes_in_order_keep_to_their_shares_and_have_parts_of_their_own() -> None:
    config = ClassesComputeConfig.model_validate(
        {
            "flops_per_cycle": 2,
            "battery_j": 10,
            "classes": [
                {"flops_per_s": 1e9, "share": 3, "battery_j": 50, "charge": 0.5},
                {"flops_per_s": 8e9, "share": 1, "kappa": 5e-27, "flops_per_cycle": 16},
            ],
        }
    )
    devices = of(config, 16)
    fast = devices.flops_per_s == 8e9
    assert fast.tolist() == [False, False, True, False] * 4
    assert np.where(fast, 5e-27, 1e-28).tolist() == devices.kappa.tolist()
    assert np.where(fast, 0.5e9, 0.5e9).tolist() == devices.frequency_hz.tolist()
    assert np.where(fast, 10.0, 50.0).tolist() == devices.battery_j.tolist()
    assert np.where(fast, 10.0, 25.0).tolist() == devices.charge_j.tolist()
    assert np.where(fast, 1.0, 5.0).tolist() == devices.restart_j.tolist()


def test_every_quantity_can_be_a_classs_own() -> None:
    assert tuple(OwnQuantities.model_fields) == QUANTITIES
    assert set(QUANTITIES) < set(DrawnComputeConfig.model_fields)
    for name in QUANTITIES:
        assert DrawnComputeConfig.model_fields[name].default == getattr(ComputeConfig(), name)


def test_phone_frequencies_stay_in_their_range() -> None:
    config = PhoneComputeConfig(frequency_min_hz=1.25e9, frequency_max_hz=1.5e9, flops_per_cycle=8)
    devices = of(config, 2000)
    assert 1.25e9 <= devices.frequency_hz.min() < 1.26e9
    assert 1.49e9 < devices.frequency_hz.max() <= 1.5e9
    assert np.array_equal(devices.flops_per_s, 8 * devices.frequency_hz)
    with pytest.raises(ValidationError, match="must not exceed frequency_max_hz, got 3e\\+09"):
        PhoneComputeConfig(frequency_min_hz=3e9)


def test_a_phones_battery_comes_with_its_radio_and_leaves_what_is_given() -> None:
    plain, own = PhoneComputeConfig(), PhoneComputeConfig(battery=True, idle_w=0.5)
    assert own.battery_j == pytest.approx(4.0 * 3.85 * 3600)
    assert own.sleep_w == pytest.approx(0.5943 * 43.2 / 1280.2, rel=0.01)
    assert own.receive_w == pytest.approx(1.288 + 0.05197 * 10, rel=0.01)
    assert own.idle_w == 0.5
    assert np.array_equal(of(plain, 5).frequency_hz, of(own, 5).frequency_hz)
    assert of(plain).mains
    again = load_scenario(parse(to_yaml(scenario({"devices.compute": {"battery": True}}))).data)
    assert again.devices.compute == PhoneComputeConfig(battery=True)


def test_presets_draw_what_their_data_sheets_say() -> None:
    mcu, gpu = McuComputeConfig(), EdgeGpuComputeConfig()
    assert mcu.kappa * mcu.frequency_hz**3 == pytest.approx(3.3e-3 * 3.0, rel=0.005)
    for dbm, milliamperes in ((0.0, 6.40), (8.0, 16.40)):
        watts = mcu.circuit_w + 1e-3 * 10 ** (dbm / 10) / mcu.efficiency
        assert watts == pytest.approx(milliamperes * 3e-3, rel=0.02)
    assert mcu.receive_w == pytest.approx(6.26e-3 * 3, rel=0.005)
    assert mcu.sleep_w == pytest.approx(3.16e-6 * 3, rel=0.005)
    assert mcu.battery_j == pytest.approx(0.225 * 3600 * 3)
    assert of(mcu).flops_per_s.tolist() == [32e6]
    assert gpu.kappa * gpu.frequency_hz**3 == pytest.approx(15.0, rel=0.005)
    assert gpu.kappa * 0.85e9**3 == pytest.approx(7.5, rel=0.13)
    slowest = of(gpu).frequency_min_hz[0]
    assert slowest == pytest.approx(0.85e9, rel=0.01)


def test_rows_of_stacked_hardware() -> None:
    trials = [
        of(FixedComputeConfig(flops_per_s=f, flops_per_cycle=2, kappa=f / 1e30), 2)
        for f in (1e9, 3e9)
    ]
    stacked = Hardware.stack(trials)
    assert stacked.flops_per_s.tolist() == [[1e9, 1e9], [3e9, 3e9]]
    rows = stacked.rows(np.array([1, 0, 1]), np.array([0, 1, 1]))
    assert rows.flops_per_s.tolist() == [3e9, 1e9, 3e9]
    assert rows.frequency_hz.tolist() == [1.5e9, 0.5e9, 1.5e9]
    assert rows.kappa.tolist() == [3e9 / 1e30, 1e9 / 1e30, 3e9 / 1e30]


def from_csv(folder: Path, text: str, **settings: Any) -> Any:
    file = folder / "devices.csv"
    file.write_text(text)
    return CsvComputeConfig(file=str(file), **settings)


def test_a_file_has_a_device_a_row(tmp_path: Path) -> None:
    text = "frequency_hz, flops_per_s, battery_j, flops_per_cycle\n2e9,,7,\n,3e9,,6\n\n1e9,,9,2\n"
    devices = of(from_csv(tmp_path, text, flops_per_cycle=8, kappa=3e-28), 5)
    assert devices.flops_per_s.tolist() == [16e9, 3e9, 2e9, 16e9, 3e9]
    assert devices.frequency_hz.tolist() == [2e9, 0.5e9, 1e9, 2e9, 0.5e9]
    assert devices.battery_j.tolist() == [7, np.inf, 9, 7, np.inf]
    assert devices.kappa.tolist() == [3e-28] * 5
    again = of(from_csv(tmp_path, "flops_per_s,charge\n1,0.5\n", battery_j=4), 2)
    assert again.charge_j.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flops_per_s,batery_j\n1,2\n", r"line 1: column 'batery_j' is not known; known: flops"),
        ("flops_per_s,flops_per_s\n1,2\n", r"line 1: column 'flops_per_s' occurs twice"),
        ("flops_per_s\n1\n-1\n", r"line 3, column 'flops_per_s': got -1; must be greater than 0"),
        ("flops_per_s\nfast\n", r"line 2, column 'flops_per_s': got 'fast'; must be a finite"),
        ("flops_per_s,charge\n1,2\n", r"line 2, column 'charge': got 2; must be less than or"),
        ("flops_per_s,charge\n1\n", r"line 2: has 1 cells, and there are 2 columns"),
        ("battery_j\n1\n", r"line 2: must have one of the columns flops_per_s and frequency_hz"),
        ("flops_per_s,frequency_hz\n1,1\n", r"line 2: must have one of the columns flops_per_s"),
        ("flops_per_s\n", r"has no rows below its first line"),
    ],
    ids=["unknown", "twice", "negative", "text", "range", "cells", "speed", "both", "empty"],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    config = from_csv(tmp_path, text)
    with pytest.raises(UserError, match=r"^devices.compute.file: '.*devices.csv'.*" + message):
        of(config)


def test_a_file_that_is_not_there_is_said_so() -> None:
    with pytest.raises(UserError, match=r"'no.csv' cannot be read \(No such file"):
        of(CsvComputeConfig(file="no.csv"))


def test_numbers_stay_numbers_among_drawn_quantities() -> None:
    config = DrawnComputeConfig.model_validate({"flops_per_s": {"choice": [2e9]}, "kappa": 3e-28})
    devices = of(config, 3)
    assert devices.flops_per_s.tolist() == [2e9] * 3
    assert devices.kappa.tolist() == [3e-28] * 3
    assert devices.battery_j.tolist() == [np.inf] * 3


def test_a_law_leaves_the_other_quantities_as_they_are() -> None:
    speed = {"uniform": [1e9, 2e9]}
    plain = DrawnComputeConfig.model_validate({"flops_per_s": speed})
    more = DrawnComputeConfig.model_validate(
        {"flops_per_s": speed, "charge": {"uniform": [0, 1]}, "kappa": {"choice": [1, 2]}}
    )
    assert np.array_equal(of(plain, 9).flops_per_s, of(more, 9).flops_per_s)


@pytest.mark.parametrize(
    ("key", "law", "message"),
    [
        ("battery_j", {"unifrm": [1, 2]}, "battery_j: got the keys unifrm; a law is one of"),
        ("battery_j", {"uniform": [-1, 2]}, "battery_j: can be -1; .* must be above 0"),
        ("efficiency", {"uniform": [0.5, 2]}, "efficiency: can be 2; .* must be at most 1"),
        (
            "charge",
            {"lognormal": {"median": 0.1, "sigma": 1}},
            "charge: can be inf; .* must be at most 1",
        ),
        ("kappa", {"lognormal": {"median": 1}}, "kappa: lognormal takes a mapping of median"),
        ("kappa", {"choice": []}, r"kappa.choice: got \[\]; must be a list of at least 1"),
        (
            "harvest_w",
            {"normal": {"mean": 1, "std": 1, "least": 2}},
            r"harvest_w.normal: least \(2\) must not exceed the mean \(1\)",
        ),
        ("idle_w", "much", "idle_w: got 'much'; must be a number"),
        ("idle_w", -1, "idle_w: can be -1; all that can be drawn must be at least 0"),
    ],
    ids=["name", "negative", "above", "tail", "keys", "none", "least", "text", "number"],
)
def test_laws_must_fit_their_quantity(key: str, law: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=r"devices\.compute\." + message):
        scenario({"devices.compute": {"name": "drawn", key: law}})


def test_an_exponential_jitter_keeps_a_shift() -> None:
    with pytest.raises(ScenarioError, match="jitter_scale must be at most 1 with jitter 'exp"):
        scenario({"devices.compute": {"jitter": "exponential", "jitter_scale": 1.5}})


def test_frequency_control_needs_a_deadline_and_more_than_one_frequency() -> None:
    classes = {"name": "classes", "classes": [{"flops_per_s": 1e9}, 2e9]}
    deadline = {"devices.frequency": "deadline", "devices.deadline_s": 1.0}
    with pytest.raises(ScenarioError, match=r"frequency: 'deadline' needs devices\.deadline_s"):
        scenario({"devices.frequency": "deadline", "devices.compute": "edge_gpu"})
    for compute in ("phone", "mcu", classes, {"name": "drawn", "frequency_min_share": 1}):
        with pytest.raises(ScenarioError, match="frequency_min_share leaves each device one"):
            scenario(deadline | {"devices.compute": compute})
    slower = {"name": "classes", "classes": [{"flops_per_s": 1e9, "frequency_min_share": 0.5}, 2e9]}
    drawn = {"name": "drawn", "frequency_min_share": {"uniform": [0.2, 1]}}
    for compute in ("edge_gpu", slower, drawn, {"frequency_min_share": 0.5}):
        assert scenario(deadline | {"devices.compute": compute}).devices.frequency.share == 1.0


def test_joint_control_needs_a_digital_uplink() -> None:
    joint = {"devices.frequency": "joint", "devices.deadline_s": 1.0}
    for transport in ("ideal", "over_the_air", {"name": "digital", "rate": "mcs"}):
        with pytest.raises(ScenarioError, match="'joint' plans the power of transport 'digital'"):
            scenario(joint | {"transport": transport})
    assert scenario(joint | {"transport": "digital"}).devices.frequency.name == "joint"


def test_jitter_takes_time_and_no_joules_and_stacked_is_alone() -> None:
    keys = {
        "devices.compute": {
            "name": "drawn",
            "flops_per_s": {"lognormal": {"median": 1e9, "sigma": 0.5}},
            "sleep_w": {"uniform": [0.1, 0.2]},
            "jitter": "exponential",
        },
        "trials": 2,
        "sweep": {"devices.compute.jitter_scale": [0.0, 0.9]},
    }
    clock = run(engine(keys), 2).parts.clock
    still, shaken = clock.now()[:2], clock.now()[2:]
    assert (still != shaken).all()
    joules = clock.spent_j()[..., CAUSES.index("compute")]
    np.testing.assert_allclose(joules[2:], joules[:2], rtol=1e-12)
    alone = run(engine(keys, trials=[1], chosen=[1]), 2).parts.clock
    assert alone.now()[0] == clock.now()[3]
    np.testing.assert_allclose(alone.spent_j()[0], clock.spent_j()[3], rtol=1e-9)
