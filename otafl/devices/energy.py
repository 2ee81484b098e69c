"""Count the joules of computing: a cycle at f cycles a second costs kappa f^2 joules.

kappa is the effective switched capacitance (Yang et al. 2021, "Energy Efficient Federated Learning
Over Wireless Communication Networks"). What the radio and its circuits cost, the clock adds up.
"""

from __future__ import annotations

import numpy as np


def compute_energy_j(
    cycles: np.ndarray | float, frequency_hz: np.ndarray, kappa: np.ndarray
) -> np.ndarray:
    """Return the joules of so many cycles at a frequency, kappa f^2 cycles, of the shape that these
    broadcast to."""
    return kappa * frequency_hz**2 * cycles
