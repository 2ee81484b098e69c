"""Joules of computing, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from otafl.devices.energy import compute_energy_j

pytestmark = pytest.mark.exact


def test_a_cycle_costs_kappa_times_frequency_squared() -> None:
    """1e9 cycles at 2 GHz with 1e-28: 0.4 J. Half the frequency costs a quarter."""
    joules = compute_energy_j(1e9, np.array([2e9, 1e9, 2e9]), np.array([1e-28, 1e-28, 5e-28]))
    np.testing.assert_allclose(joules, [0.4, 0.1, 2.0], rtol=1e-12)


def test_power_of_a_busy_processor() -> None:
    """A second's cycles: kappa f^3, the dynamic power of CMOS."""
    frequency = np.array([1e9, 1.5e9])
    joules = compute_energy_j(frequency, frequency, np.full(2, 1e-28))
    np.testing.assert_allclose(joules, 1e-28 * frequency**3, rtol=1e-12)
