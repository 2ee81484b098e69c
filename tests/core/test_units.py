"""Decibels worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from otafl.core.units import db_to_linear, dbm_to_watt, noise_power_w

pytestmark = pytest.mark.exact


def test_decibels() -> None:
    for value_db, ratio in ((0.0, 1.0), (10.0, 10.0), (-20.0, 0.01), (3.0103, 2.0)):
        assert db_to_linear(value_db) == pytest.approx(ratio, rel=1e-6)
        for make in (np.array, torch.tensor):
            assert db_to_linear(make([value_db])).tolist() == pytest.approx([ratio], rel=1e-6)
    assert [dbm_to_watt(one) for one in (30.0, 20.0, 0.0)] == pytest.approx([1.0, 0.1, 1e-3])


def test_thermal_noise_by_hand() -> None:
    """-174 dBm/Hz + 60 dBHz + 5 dB = -109 dBm = 1e-13.9 W."""
    assert noise_power_w(1e6, 5.0) == pytest.approx(10**-13.9, rel=1e-12)
