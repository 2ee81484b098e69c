"""Joules: what computing and radiating cost, and who has spent how much.

Computing: a cycle at f cycles a second costs kappa f^2 joules (Yang et al. 2021, "Energy Efficient
Federated Learning Over Wireless Communication Networks"; kappa is the effective switched
capacitance). Radio: transmit power times airtime; the circuits of the radio are not counted.
"""

from __future__ import annotations

import numpy as np

from otafl.clock import Speeds


def compute_energy_j(flops: np.ndarray | float, speeds: Speeds) -> np.ndarray:
    """Joules of so many operations, of the shape that flops and speeds broadcast to.

    E = kappa f^2 cycles, and a device makes flops_per_s / f operations in a cycle.
    """
    cycles = flops * speeds.frequency_hz / speeds.flops_per_s
    return speeds.kappa * speeds.frequency_hz**2 * cycles


def radio_energy_j(power_w: np.ndarray | float, airtime_s: np.ndarray | float) -> np.ndarray:
    """Joules radiated at a mean power in W (|p|^2 times the mean symbol power) over an airtime."""
    return np.asarray(power_w) * airtime_s


class Account:
    """Joules spent by S trials of K devices, by cause.

    `spent`: cause -> [S, K] float64. A NaN that is charged (a trial that diverged) stays with its
    device.
    """

    def __init__(
        self, trials: int, devices: int, causes: tuple[str, ...] = ("compute", "radio")
    ) -> None:
        self.spent = {cause: np.zeros((trials, devices)) for cause in causes}

    def charge(self, cause: str, joules: np.ndarray) -> None:
        """Adds joules [S, K], or of a shape that broadcasts to it."""
        _check_charge(cause, joules)
        self.spent[cause] += joules

    def charge_rows(
        self, cause: str, trial: np.ndarray, device: np.ndarray, joules: np.ndarray
    ) -> None:
        """Adds joules [N] to the pairs trial [N], device [N]; a pair may occur more than once."""
        _check_charge(cause, joules)
        np.add.at(self.spent[cause], (trial, device), joules)

    def total(self) -> np.ndarray:
        """[S, K] joules of all causes."""
        return np.sum(list(self.spent.values()), axis=0)

    def left(self, budget_j: np.ndarray | float | None) -> np.ndarray:
        """[S, K] joules left of a budget that broadcasts to [S, K]: 0 where overspent, inf
        everywhere for None (unbounded)."""
        budget = np.inf if budget_j is None else budget_j
        return np.maximum(budget - self.total(), 0.0)


def _check_charge(cause: str, joules: np.ndarray) -> None:
    if (np.asarray(joules) < 0).any():
        raise ValueError(f"the {cause} energy charged must not be negative, got {np.min(joules)}")
