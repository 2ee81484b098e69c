"""Joules of computing: a cycle at f cycles a second costs kappa f^2 joules (Yang et al. 2021,
"Energy Efficient Federated Learning Over Wireless Communication Networks"; kappa is the effective
switched capacitance). What the radio and its circuits cost, the clock adds up."""

from __future__ import annotations

import numpy as np


def compute_energy_j(
    cycles: np.ndarray | float, frequency_hz: np.ndarray, kappa: np.ndarray
) -> np.ndarray:
    """Joules of so many cycles at a frequency, of the shape that these broadcast to: kappa f^2
    cycles."""
    return kappa * frequency_hz**2 * cycles
