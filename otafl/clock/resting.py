"""Account for the batteries of devices that have only slept so far, all of a trial at once."""

from __future__ import annotations

import numpy as np

from otafl.devices.battery import Battery
from otafl.devices.hardware import Hardware


class Resting:
    """Keep the batteries of devices that have slept since the start of a trial, [K] each.

    They are accounted for as `Battery` does for one, to the bit. empty_s: [K] when each will be
    empty if its device sleeps on, inf where it will not.
    """

    def __init__(self, hardware: Hardware) -> None:
        self._capacity_j, self._harvest_w = hardware.battery_j, hardware.harvest_w
        self._sleep_w = hardware.sleep_w
        self._charge_j = hardware.charge_j.copy()
        self._harvested_j = np.zeros_like(self._charge_j)
        self._at_s = 0.0
        falls = self._sleep_w - self._harvest_w
        full = np.full_like(self._charge_j, np.inf)
        self.empty_s = np.divide(self._charge_j, falls, out=full, where=falls > 0)

    def is_on_mains(self, device: int) -> bool:
        """Say whether a device has no battery."""
        return bool(np.isinf(self._capacity_j[device]))

    def update_charge(self, now_s: float) -> np.ndarray:
        """Account for everything until now; return the charges in J, inf on mains."""
        seconds = now_s - self._at_s
        if seconds > 0:
            drawn = self._sleep_w * seconds
            charge = self._charge_j + self._harvest_w * seconds - drawn
            charge = np.minimum(self._capacity_j, np.maximum(0.0, charge))
            with np.errstate(invalid="ignore"):  # of those on mains
                self._harvested_j += charge - self._charge_j + drawn
            self._charge_j, self._at_s = charge, now_s
        return self._charge_j.copy()

    def compute_harvested_j(self) -> np.ndarray:
        """Return what has been taken up so far, [K]."""
        return self._harvested_j.copy()

    def remove_device(self, device: int) -> Battery:
        """Return the battery of a device that does something else from now on."""
        numbers = self._capacity_j[device], self._charge_j[device], self._harvest_w[device]
        battery = Battery(*map(float, numbers))
        battery.take_over(
            self._at_s, float(self._harvested_j[device]), float(self._sleep_w[device])
        )
        return battery
