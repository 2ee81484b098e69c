"""Hardware of several trials, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.made_devices import make_hardware

from otafl.devices.compute.fixed import Fixed
from otafl.devices.hardware import Hardware

pytestmark = pytest.mark.exact


def test_rows_of_stacked_hardware() -> None:
    trials = [
        make_hardware(Fixed(flops_per_s=f, flops_per_cycle=2, kappa=f / 1e30), 2)
        for f in (1e9, 3e9)
    ]
    stacked = Hardware.stack(trials)
    assert stacked.flops_per_s.tolist() == [[1e9, 1e9], [3e9, 3e9]]
    rows = stacked.select_rows(np.array([1, 0, 1]), np.array([0, 1, 1]))
    assert rows.flops_per_s.tolist() == [3e9, 1e9, 3e9]
    assert rows.frequency_hz.tolist() == [1.5e9, 0.5e9, 1.5e9]
    assert rows.kappa.tolist() == [3e9 / 1e30, 1e9 / 1e30, 3e9 / 1e30]
