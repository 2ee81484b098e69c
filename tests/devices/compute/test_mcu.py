"""The microcontroller against its data sheet."""

from __future__ import annotations

import pytest
from support.made_devices import make_hardware

from otafl.devices.compute.mcu import Mcu

pytestmark = pytest.mark.exact


def test_it_draws_what_its_data_sheet_says() -> None:
    mcu = Mcu()
    assert mcu.kappa * mcu.frequency_hz**3 == pytest.approx(3.3e-3 * 3.0, rel=0.005)
    for dbm, milliamperes in ((0.0, 6.40), (8.0, 16.40)):
        watts = mcu.circuit_w + 1e-3 * 10 ** (dbm / 10) / mcu.efficiency
        assert watts == pytest.approx(milliamperes * 3e-3, rel=0.02)
    assert mcu.receive_w == pytest.approx(6.26e-3 * 3, rel=0.005)
    assert mcu.sleep_w == pytest.approx(3.16e-6 * 3, rel=0.005)
    assert mcu.battery_j == pytest.approx(0.225 * 3600 * 3)
    assert make_hardware(mcu).flops_per_s.tolist() == [32e6]
