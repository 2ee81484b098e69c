"""The embedded GPU against its data sheet."""

from __future__ import annotations

import pytest
from support.made_devices import make_hardware

from otafl.devices.compute.edge_gpu import EdgeGpu

pytestmark = pytest.mark.exact


def test_it_draws_what_its_data_sheet_says() -> None:
    gpu = EdgeGpu()
    assert gpu.kappa * gpu.frequency_hz**3 == pytest.approx(15.0, rel=0.005)
    assert gpu.kappa * 0.85e9**3 == pytest.approx(7.5, rel=0.13)
    slowest = make_hardware(gpu).frequency_min_hz[0]
    assert slowest == pytest.approx(0.85e9, rel=0.01)
