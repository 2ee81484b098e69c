"""Phones against numbers worked by hand, and the law of their clocks."""

from __future__ import annotations

import numpy as np
import pytest
from contract.small import scenario
from pydantic import ValidationError
from support.made_devices import make_hardware
from support.rounding import assert_agree

from otafl.devices.compute.phone import Phone
from otafl.scenario import load_scenario, to_yaml
from otafl.scenario.yaml_source import parse


@pytest.mark.exact
def test_phone_frequencies_stay_in_their_range() -> None:
    config = Phone(frequency_min_hz=1.25e9, frequency_max_hz=1.5e9, flops_per_cycle=8)
    devices = make_hardware(config, 2000)
    assert 1.25e9 <= devices.frequency_hz.min() < 1.26e9
    assert 1.49e9 < devices.frequency_hz.max() <= 1.5e9
    assert np.array_equal(devices.flops_per_s, 8 * devices.frequency_hz)
    with pytest.raises(ValidationError, match=r"frequency_min_hz: got 3e.09; must not exceed"):
        Phone(frequency_min_hz=3e9)


@pytest.mark.exact
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


@pytest.mark.exact
def test_phones_follow_the_generator() -> None:
    many = make_hardware(Phone(), 50, seed=4).flops_per_s
    assert_agree(many[:10], make_hardware(Phone(), 10, seed=4).flops_per_s)
    assert not np.array_equal(many, make_hardware(Phone(), 50, seed=6).flops_per_s)
