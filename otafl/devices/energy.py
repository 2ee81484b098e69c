"""Energy of local work.

Yang et al. 2021, "Energy Efficient Federated Learning Over Wireless Communication Networks", is the
source of kappa, the effective switched capacitance. `otafl.clock.power` adds the energy of the
radio.
"""

from __future__ import annotations

import numpy as np


def compute_energy_j(
    cycles: np.ndarray | float, frequency_hz: np.ndarray, kappa: np.ndarray
) -> np.ndarray:
    r"""Compute the energy of clock cycles.

    Parameters
    ----------
    cycles : ndarray or float
        Number of cycles C.
    frequency_hz : ndarray
        Clock frequency f.
    kappa : ndarray
        Effective switched capacitance in J s^2 / cycle^3.

    Returns
    -------
    ndarray
        Energy in joules, in the broadcast shape of the arguments.

    Notes
    -----
    .. math:: E = \kappa f^2 C
    """
    return kappa * frequency_hz**2 * cycles
