"""Decibels worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from otafl.core.units import db_to_linear, dbm_to_watt, noise_power_w

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("value_db", "ratio"), [(0.0, 1.0), (10.0, 10.0), (-20.0, 0.01), (3.0103, 2.0)]
)
def test_decibels(value_db: float, ratio: float) -> None:
    assert db_to_linear(value_db) == pytest.approx(ratio, rel=1e-6)
    both = db_to_linear(torch.tensor([value_db, value_db], dtype=torch.float64))
    assert both.tolist() == pytest.approx([db_to_linear(value_db)] * 2, rel=1e-12)
    found = db_to_linear(np.array([value_db])).tolist()
    assert found == pytest.approx([db_to_linear(value_db)], rel=1e-12)


@pytest.mark.parametrize(("value_dbm", "power_w"), [(30.0, 1.0), (20.0, 0.1), (0.0, 1e-3)])
def test_dbm(value_dbm: float, power_w: float) -> None:
    assert dbm_to_watt(value_dbm) == pytest.approx(power_w, rel=1e-12)


def test_thermal_noise_by_hand() -> None:
    """-174 dBm/Hz + 60 dBHz + 5 dB = -109 dBm = 1e-13.9 W."""
    assert noise_power_w(1e6, 5.0) == pytest.approx(10**-13.9, rel=1e-12)
