"""Energy of a trial's devices by cause, and the charge of their batteries.

Times are in seconds, energies in joules.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from typing import cast

import numpy as np
import simpy

from otafl.clock.batteries import Battery, Draw
from otafl.clock.local_work import ByDevice, LocalWork
from otafl.devices.hardware import CAUSES, Hardware

COMPUTE, TRANSMIT, CIRCUIT, RECEIVE, IDLE = range(len(CAUSES))


class Power:
    """Energy account of the devices of one trial.

    The account is an array for each cause, of which single elements are read and written. Memory of
    devices that never take part is not touched.

    Parameters
    ----------
    env : simpy.Environment
        Environment of the trial.
    hardware : Hardware, arrays [K]
        Hardware of the devices.
    emptied : callable
        Function that is called with the number of a device whose battery is empty.

    Attributes
    ----------
    batteries : dict of int to Battery
        Batteries of the devices that have one.
    """

    def __init__(
        self, env: simpy.Environment, hardware: Hardware, emptied: Callable[[int], None]
    ) -> None:
        self._env, self._on_empty_battery = env, emptied
        watts = (hardware.circuit_w, hardware.receive_w, hardware.idle_w, hardware.sleep_w)
        self._circuit_w, self._receive_w, self._idle_w, self._sleep_w = map(_scalars, watts)
        self._restart_j = _scalars(hardware.restart_j)
        devices = len(hardware.battery_j)
        # without the current sleep; the operating system allocates pages when first written
        self._spent = [_scalars(np.zeros(devices)) for _ in CAUSES]
        self._asleep_s = _scalars(np.zeros(devices))  # start of sleep; nan while at work or away
        numbers = (hardware.battery_j, hardware.charge_j, hardware.harvest_w, hardware.sleep_w)
        self.batteries = {
            device: Battery(*(float(one[device]) for one in numbers))
            for device in np.flatnonzero(np.isfinite(hardware.battery_j)).tolist()
        }
        self._plans: Counter[int] = Counter()  # version of the plan of each battery
        for device in self.batteries:
            self._plan(device, [])

    def sleep(self, device: int) -> None:
        """Start the sleep of a device that has no work."""
        now_s = self._env.now
        self._asleep_s[device] = now_s
        self._plan(device, [(now_s, self._sleep_w[device])])

    def wake(self, device: int) -> None:
        """End the sleep of a device, if it sleeps, and charge its energy."""
        asleep_s = self._env.now - self._asleep_s[device]
        if asleep_s > 0:
            self._spent[IDLE][device] += self._sleep_w[device] * asleep_s
        self._asleep_s[device] = math.nan

    def cut(self, device: int) -> None:
        """Set the power of a device to zero from now on."""
        self._plan(device, [(self._env.now, 0.0)])

    def work(self, update: LocalWork) -> None:
        """Start the reception, the local work and the wait of a device."""
        device = update.device
        self.wake(device)
        if self.batteries:
            draws = [
                (self._env.now, self._receive_w[device]),
                (update.began_s, update.compute_w),
                (update.ready_s, self._idle_w[device]),
            ]
            self._plan(device, draws)

    def charge_ended(self, update: LocalWork) -> None:
        """Charge the energy of an update that ends now."""
        costs = zip((RECEIVE, COMPUTE, IDLE), self._compute_costs(update), strict=True)
        for cause, joules in costs:
            self._spent[cause][update.device] += joules

    def send(self, stops: dict[int, float], joules: ByDevice[float] | None) -> dict[int, float]:
        """Start the transmission of devices, which sleep after their `stops`.

        Parameters
        ----------
        stops : dict of int to float
            Device -> end of its transmission.
        joules : sequence or mapping, optional
            Energy that each device's amplifier draws.

        Returns
        -------
        dict of int to float
            Device -> instant at which its battery will be empty, inf if never.
        """
        if not self.batteries:
            return dict.fromkeys(stops, math.inf)
        now_s = self._env.now
        empties = {}
        for device, stop_s in stops.items():
            watts = self._circuit_w[device]
            if joules is not None and stop_s > now_s:
                watts += joules[device] / (stop_s - now_s)
            draws = [(now_s, watts), (stop_s, self._sleep_w[device])]
            empties[device] = self._plan(device, draws)
        return empties

    def charge_slot(
        self,
        opened_s: float,
        stops: dict[int, float],
        empties: dict[int, float],
        joules: ByDevice[float] | None,
        away: Mapping[int, dict[str, float]],
    ) -> None:
        """Charge the transmissions of a slot that has ended, and start the sleep of its devices.

        Parameters
        ----------
        opened_s : float
            Time at which the slot opened.
        stops : dict of int to float
            Device -> end of its transmission.
        empties : dict of int to float
            Device -> instant at which its battery is empty, from `send`.
        joules : sequence or mapping, optional
            Energy that each device's amplifier draws.
        away : mapping
            Device that is away now -> its reasons.
        """
        spent, now_s = self._spent, self._env.now
        for device, stop_s in stops.items():
            # a battery that is empty before the end gives its remaining charge
            end_s = min(stop_s, empties[device])
            spent[CIRCUIT][device] += self._circuit_w[device] * (end_s - opened_s)
            if joules is not None and stop_s > opened_s:
                share = (end_s - opened_s) / (stop_s - opened_s)
                spent[TRANSMIT][device] += share * joules[device]
            if device not in away:
                self._asleep_s[device] = stop_s
                continue
            asleep_s = min(now_s, empties[device]) - stop_s
            spent[IDLE][device] += self._sleep_w[device] * max(0.0, asleep_s)
            if "empty" not in away[device]:
                self.cut(device)

    def compute_seconds_to_restart(self, device: int) -> float:
        """Compute the seconds until an empty battery restarts its device, inf without harvest."""
        battery = self.batteries[device]
        battery.update_charge(self._env.now)
        return battery.compute_seconds_to(self._restart_j[device])

    def compute_spent_j(self, at_work: Iterable[LocalWork]) -> np.ndarray:
        """Compute the energy so far, [K, causes].

        It includes sleep until now, and the work done so far for updates at work.
        """
        spent = np.stack([np.asarray(joules) for joules in self._spent], axis=1)
        asleep = np.asarray(self._sleep_w) * (float(self._env.now) - np.asarray(self._asleep_s))
        spent[:, IDLE] += np.nan_to_num(asleep)
        for update in at_work:
            spent[update.device, [RECEIVE, COMPUTE, IDLE]] += self._compute_costs(update)
        return spent

    def compute_charge_j(self) -> np.ndarray:
        """Compute the charge [K] of the batteries in joules, inf on mains."""
        now_s = float(self._env.now)
        charge_j = np.full(len(self._asleep_s), math.inf)
        for device, battery in self.batteries.items():
            charge_j[device] = battery.update_charge(now_s)
        return charge_j

    def _compute_costs(self, update: LocalWork) -> tuple[float, float, float]:
        """Compute the joules of an update so far: reception, local work and waiting."""
        device, now_s = update.device, self._env.now
        if update.ready:
            received, computed = update.began_s - update.sent_s, update.ready_s - update.began_s
            waited = now_s - update.ready_s
        else:
            received = min(now_s, update.began_s) - update.sent_s
            computed, waited = max(0.0, now_s - update.began_s), 0.0
        return (
            self._receive_w[device] * received,
            update.compute_w * computed,
            self._idle_w[device] * waited,
        )

    def _plan(self, device: int, draws: Sequence[Draw]) -> float:
        """Replace the planned draw of a battery, and schedule the event at which it is empty.

        Returns
        -------
        float
            Instant at which the battery will be empty, inf if never or on mains.
        """
        battery = self.batteries.get(device)
        if battery is None:
            return math.inf
        self._plans[device] += 1
        now_s = self._env.now
        empty_s = battery.plan(now_s, draws)
        if empty_s != math.inf:
            event = self._env.timeout(max(0.0, empty_s - now_s), (device, self._plans[device]))
            event.callbacks.append(self._on_empty)
        return empty_s

    def _on_empty(self, event: simpy.Event) -> None:
        """Report an empty battery, unless its draw has been planned again since."""
        device, plan = cast(tuple[int, int], event.value)
        if plan == self._plans[device]:
            self._on_empty_battery(device)


def _scalars(values: np.ndarray) -> MutableSequence[float]:
    """Return an array [K] as a buffer, whose single elements are faster to read and write."""
    return cast(MutableSequence[float], values.data)
