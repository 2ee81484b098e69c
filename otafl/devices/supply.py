"""What a trial's devices have spent, by cause, and what their batteries have left. The clock says
what each device does; times in seconds, energies in joules."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from otafl.devices.activities import CAUSES
from otafl.devices.battery import Battery, Draw
from otafl.devices.hardware import Hardware

COMPUTE, TRANSMIT, CIRCUIT, RECEIVE, IDLE = range(len(CAUSES))


class Supply:
    """hardware: [K]. Lists are by device: scalars are what a clock reads, one at a time.

    restart_j: charge at which a device whose battery was empty comes back. plain: all are on mains,
    and draw nothing but for computing and radiating. spent: [causes][K], but for the sleep of those
    who sleep now.
    """

    def __init__(self, hardware: Hardware) -> None:
        self.circuit_w: list[float] = hardware.circuit_w.tolist()
        self.receive_w: list[float] = hardware.receive_w.tolist()
        self.idle_w: list[float] = hardware.idle_w.tolist()
        self.sleep_w: list[float] = hardware.sleep_w.tolist()
        self.restart_j: list[float] = hardware.restart_j.tolist()
        batteries = zip(
            hardware.battery_j.tolist(),
            hardware.charge_j.tolist(),
            hardware.harvest_w.tolist(),
            strict=True,
        )
        self.batteries = [
            None if math.isinf(capacity) else Battery(capacity, charge, harvest)
            for capacity, charge, harvest in batteries
        ]
        devices = len(self.batteries)
        watts = (hardware.circuit_w, hardware.receive_w, hardware.idle_w, hardware.sleep_w)
        self.plain = hardware.mains and not any(one.any() for one in watts)
        self.spent = [[0.0] * devices for _ in CAUSES]
        self._asleep_s = [0.0] * devices  # since when; nan while at work or away

    def spend(self, device: int, cause: int, joules: float) -> None:
        """Charges a device, beside what its battery is planned to give."""
        self.spent[cause][device] += joules

    def sleep(self, device: int, since_s: float) -> None:
        """It has nothing to do from then on."""
        self._asleep_s[device] = since_s

    def wake(self, device: int, now_s: float) -> None:
        """Ends its sleep, where it slept."""
        asleep_s = now_s - self._asleep_s[device]
        if asleep_s > 0:
            self.spent[IDLE][device] += self.sleep_w[device] * asleep_s
        self._asleep_s[device] = math.nan

    def plan(self, device: int, now_s: float, draws: Sequence[Draw]) -> float:
        """What its battery gives from now on, in place of what was planned. The instant at which it
        will be empty; inf on mains."""
        battery = self.batteries[device]
        return math.inf if battery is None else battery.plan(now_s, draws)

    def seconds_to_restart(self, device: int, now_s: float) -> float:
        """From now, for an empty battery; inf without harvest."""
        battery = self.batteries[device]
        assert battery is not None
        battery.settle(now_s)
        return battery.seconds_to(self.restart_j[device])

    def spent_j(self, now_s: float) -> np.ndarray:
        """[K, causes], sleep until now included."""
        spent = np.array(self.spent).T
        asleep = np.array(self.sleep_w) * (now_s - np.array(self._asleep_s))
        spent[:, IDLE] += np.nan_to_num(asleep)
        return spent

    def charge_j(self, now_s: float) -> np.ndarray:
        """[K], inf on mains."""
        return np.array([math.inf if b is None else b.settle(now_s) for b in self.batteries])

    def harvested_j(self, now_s: float) -> np.ndarray:
        """[K] taken up by the batteries so far, 0 on mains."""
        self.charge_j(now_s)
        return np.array([0.0 if b is None else b.harvested_j for b in self.batteries])
