"""What all kinds of devices have, against numbers worked by hand; and every kind of the table."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from support.made_devices import load_compute, make_hardware
from support.rounding import assert_agree

from otafl.core import registry
from otafl.core.rng import Streams
from otafl.devices import compute
from otafl.devices.compute.base import QUANTITIES, NumericCompute, OwnQuantities
from otafl.devices.compute.drawn import DrawnCompute
from otafl.devices.compute.fixed import Fixed
from otafl.devices.hardware import Hardware

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("name", registry.list_names("compute"))
def test_every_kind_says_all_of_its_devices(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positive where it must be, and the first devices whatever comes after them."""
    monkeypatch.chdir(tmp_path)
    made = load_compute(name, tmp_path)
    many, few = make_hardware(made, 6, seed=3), make_hardware(made, 4, seed=3)
    for part in fields(Hardware):
        values = getattr(many, part.name)
        assert values.shape == (6,)
        assert values.dtype == np.float64
        assert_agree(getattr(few, part.name), values[:4])
    for positive in ("flops_per_s", "frequency_hz", "frequency_min_hz", "kappa", "efficiency"):
        assert (getattr(many, positive) > 0).all()
    assert (many.frequency_min_hz <= many.frequency_hz).all()
    assert (many.charge_j <= many.battery_j).all()
    assert made.has_frequency_scaling() >= bool((many.frequency_min_hz < many.frequency_hz).any())


@pytest.mark.parametrize("name", registry.list_names("compute"))
def test_a_stack_is_its_trials(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = load_compute(name, tmp_path)
    stack = compute.build([made] * 3, 4, Streams([7, 7, 8], [0, 1, 0]))
    for trial, (seed, number) in enumerate(((7, 0), (7, 1), (8, 0))):
        alone = compute.build([made], 4, Streams([seed], [number]))
        for part in fields(Hardware):
            own, whole = getattr(alone, part.name), getattr(stack, part.name)
            assert_agree(own[0], whole[trial])


def test_by_default_devices_are_on_mains_and_draw_nothing_beside_computing() -> None:
    one = make_hardware(Fixed(flops_per_s=8e9, flops_per_cycle=4, kappa=2e-28), 3)
    assert one.flops_per_s.tolist() == [8e9] * 3
    assert one.frequency_hz.tolist() == one.frequency_min_hz.tolist() == [2e9] * 3
    assert one.kappa.tolist() == [2e-28] * 3
    for name in ("memory_mb", "battery_j", "charge_j"):
        assert getattr(one, name).tolist() == [np.inf] * 3, name
    for name in ("restart_j", "harvest_w", "circuit_w", "receive_w", "idle_w", "sleep_w"):
        assert getattr(one, name).tolist() == [0.0] * 3, name
    assert one.efficiency.tolist() == [1.0] * 3
    assert one.power_db.tolist() == [0.0] * 3
    assert one.is_on_mains


def test_every_part_can_be_given() -> None:
    one = make_hardware(
        Fixed(
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
    assert not one.is_on_mains


def test_every_quantity_can_be_a_classs_own() -> None:
    assert tuple(OwnQuantities.model_fields) == QUANTITIES
    assert set(QUANTITIES) < set(DrawnCompute.model_fields)
    for name in QUANTITIES:
        assert DrawnCompute.model_fields[name].default == NumericCompute.model_fields[name].default
