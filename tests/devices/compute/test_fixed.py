"""Devices that are all equally fast."""

from __future__ import annotations

import numpy as np
import pytest
from support.made_devices import make_hardware

from otafl.devices.compute.fixed import Fixed

pytestmark = pytest.mark.exact


def test_all_have_the_speed_and_nothing_is_drawn() -> None:
    generator = np.random.default_rng(3)
    made = Fixed(flops_per_s=3e9).build_hardware(4, generator)
    assert made.flops_per_s.tolist() == [3e9] * 4
    assert made.frequency_hz.tolist() == [0.75e9] * 4
    assert generator.random() == np.random.default_rng(3).random()
    assert make_hardware(Fixed()).flops_per_s.tolist() == [6e9]
