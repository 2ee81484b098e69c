"""Phones, embedded GPUs and microcontrollers against their data sheets."""

from __future__ import annotations

import numpy as np
import pytest
from contract.small import scenario
from support.made_devices import make_hardware

from otafl.devices.compute.kinds import EdgeGpu, Mcu, Phone
from otafl.scenario import load_scenario, to_yaml
from otafl.scenario.yaml_source import parse

pytestmark = pytest.mark.exact


def test_an_embedded_gpu() -> None:
    gpu = EdgeGpu()
    assert gpu.kappa * gpu.frequency_hz**3 == pytest.approx(15.0, rel=0.005)
    assert gpu.kappa * 0.85e9**3 == pytest.approx(7.5, rel=0.13)
    assert make_hardware(gpu).frequency_min_hz[0] == pytest.approx(0.85e9, rel=0.01)


def test_a_microcontroller() -> None:
    mcu = Mcu()
    assert mcu.kappa * mcu.frequency_hz**3 == pytest.approx(3.3e-3 * 3.0, rel=0.005)
    for dbm, milliamperes in ((0.0, 6.40), (8.0, 16.40)):
        watts = mcu.circuit_w + 1e-3 * 10 ** (dbm / 10) / mcu.efficiency
        assert watts == pytest.approx(milliamperes * 3e-3, rel=0.02)
    assert mcu.receive_w == pytest.approx(6.26e-3 * 3, rel=0.005)
    assert mcu.sleep_w == pytest.approx(3.16e-6 * 3, rel=0.005)
    assert mcu.battery_j == pytest.approx(0.225 * 3600 * 3)
    assert make_hardware(mcu).flops_per_s.tolist() == [32e6]


def test_phone_frequencies_stay_in_their_range() -> None:
    devices = make_hardware(Phone(flops_per_cycle=8), 2000)
    assert 1e9 <= devices.frequency_hz.min() < 1.01e9
    assert 1.99e9 < devices.frequency_hz.max() <= 2e9
    assert np.array_equal(devices.flops_per_s, 8 * devices.frequency_hz)


def test_a_phones_battery_comes_with_its_radio_and_leaves_what_is_given() -> None:
    plain, own = Phone(), Phone(battery=True, idle_w=0.5)
    assert own.battery_j == pytest.approx(4.0 * 3.85 * 3600)
    assert own.sleep_w == pytest.approx(0.5943 * 43.2 / 1280.2, rel=0.01)
    assert own.receive_w == pytest.approx(1.288 + 0.05197 * 10, rel=0.01)
    assert own.idle_w == 0.5
    assert np.array_equal(make_hardware(plain, 5).frequency_hz, make_hardware(own, 5).frequency_hz)
    assert make_hardware(plain).is_on_mains
    again = load_scenario(parse(to_yaml(scenario({"devices.compute": {"battery": True}}))).data)
    assert again.devices.compute == Phone(battery=True)
