"""Batteries of devices that have only slept so far, computed together."""

from __future__ import annotations

import numpy as np

from otafl.devices.battery import Battery
from otafl.devices.hardware import Hardware


class Resting:
    """Batteries of the devices that have slept since the start of a trial, [K] each.

    Their charges are equal to those of `Battery`, up to rounding.

    Parameters
    ----------
    hardware : Hardware, arrays [K]
        Hardware of the devices.

    Attributes
    ----------
    empty_s : ndarray, float64 [K]
        Time at which each battery is empty if its device continues to sleep, inf if never.
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
        """Return whether a device has no battery."""
        return bool(np.isinf(self._capacity_j[device]))

    def update_charge(self, now_s: float) -> np.ndarray:
        """Update the charges [K] until now and return them in joules, inf on mains."""
        seconds = now_s - self._at_s
        if seconds > 0:
            drawn = self._sleep_w * seconds
            charge = self._charge_j + self._harvest_w * seconds - drawn
            charge = np.minimum(self._capacity_j, np.maximum(0.0, charge))
            with np.errstate(invalid="ignore"):  # inf - inf on mains
                self._harvested_j += charge - self._charge_j + drawn
            self._charge_j, self._at_s = charge, now_s
        return self._charge_j.copy()

    def compute_harvested_j(self) -> np.ndarray:
        """Return the harvested energy [K] so far."""
        return self._harvested_j.copy()

    def remove_device(self, device: int) -> Battery:
        """Return the battery of a device that stops resting."""
        numbers = self._capacity_j[device], self._charge_j[device], self._harvest_w[device]
        battery = Battery(*map(float, numbers))
        battery.take_over(
            self._at_s, float(self._harvested_j[device]), float(self._sleep_w[device])
        )
        return battery
