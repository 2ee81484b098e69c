"""Account for what the devices of a trial draw in simulated time, by cause, and for what their
batteries have left. Times in seconds, energies in joules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import numpy as np
import simpy

from otafl.clock.local_work import LocalWork
from otafl.devices.activities import CAUSES
from otafl.devices.battery import Battery, Draw
from otafl.devices.hardware import Hardware

COMPUTE, TRANSMIT, CIRCUIT, RECEIVE, IDLE = range(len(CAUSES))


class Power:
    """Account for what the devices of a trial draw.

    Lists are by device: scalars are what a clock reads, one at a time.

    env: of the trial. hardware: [K]. emptied: is called with a device whose battery is empty.
    plain: all are on mains, and draw nothing but for computing and radiating. batteries: None on
    mains.
    """

    def __init__(
        self, env: simpy.Environment, hardware: Hardware, emptied: Callable[[int], None]
    ) -> None:
        self._env, self._emptied = env, emptied
        self._circuit_w: list[float] = hardware.circuit_w.tolist()
        self._receive_w: list[float] = hardware.receive_w.tolist()
        self._idle_w: list[float] = hardware.idle_w.tolist()
        self._sleep_w: list[float] = hardware.sleep_w.tolist()
        self._restart_j: list[float] = hardware.restart_j.tolist()
        batteries = np.stack([hardware.battery_j, hardware.charge_j, hardware.harvest_w], 1)
        self.batteries = [
            None if math.isinf(one[0]) else Battery(*one) for one in batteries.tolist()
        ]
        devices = len(self.batteries)
        watts = (hardware.circuit_w, hardware.receive_w, hardware.idle_w, hardware.sleep_w)
        self.plain = hardware.mains and not any(one.any() for one in watts)
        self._spent = [[0.0] * devices for _ in CAUSES]  # but for the sleep of those who sleep now
        self._asleep_s = [0.0] * devices  # since when; nan while at work or away
        self._plans = [0] * devices  # how often a battery's draw was planned anew
        for device in range(devices):
            self._plan(device, [(0.0, self._sleep_w[device])])

    def sleep(self, device: int) -> None:
        """Let a device have nothing to do from now on."""
        now_s = self._env.now
        self._asleep_s[device] = now_s
        self._plan(device, [(now_s, self._sleep_w[device])])

    def wake(self, device: int) -> None:
        """End a device's sleep, where it sleeps."""
        asleep_s = self._env.now - self._asleep_s[device]
        if asleep_s > 0:
            self._spent[IDLE][device] += self._sleep_w[device] * asleep_s
        self._asleep_s[device] = math.nan

    def cut(self, device: int) -> None:
        """Let a device draw nothing from now on."""
        self._plan(device, [(self._env.now, 0.0)])

    def work(self, update: LocalWork) -> None:
        """Let a device receive, compute and wait for its slot, from now on."""
        device = update.device
        self.wake(device)
        self._plan(
            device,
            [
                (self._env.now, self._receive_w[device]),
                (update.began_s, update.compute_w),
                (update.ready_s, self._idle_w[device]),
            ],
        )

    def settle(self, update: LocalWork) -> None:
        """Charge what an update that ends here has cost."""
        costs = zip((RECEIVE, COMPUTE, IDLE), self._costs(update), strict=True)
        for cause, joules in costs:
            self._spent[cause][update.device] += joules

    def settle_ready(self, updates: Iterable[LocalWork]) -> None:
        """Charge what updates that are ready have cost."""
        if self.plain:  # as `settle`, in a hurry
            computed = self._spent[COMPUTE]
            for update in updates:
                computed[update.device] += update.compute_w * (update.ready_s - update.began_s)
        else:
            for update in updates:
                self.settle(update)

    def send(self, stops: dict[int, float], joules: Sequence[float] | None) -> dict[int, float]:
        """Let devices transmit from now on, and sleep from their `stops` on. Return when each
        battery will be empty."""
        if self.plain:
            return {}
        now_s = self._env.now
        empties = {}
        for device, stop_s in stops.items():
            watts = self._circuit_w[device]
            if joules is not None and stop_s > now_s:
                watts += joules[device] / (stop_s - now_s)
            draws = [(now_s, watts), (stop_s, self._sleep_w[device])]
            empties[device] = self._plan(device, draws)
        return empties

    def sent(
        self,
        opened_s: float,
        stops: dict[int, float],
        empties: dict[int, float],
        joules: Sequence[float] | None,
        away: Sequence[dict[str, float]],
    ) -> None:
        """Charge the transmissions of a slot that has ended; the devices sleep.

        away: why each device is away, by now.
        """
        spent = self._spent
        if self.plain:
            if joules is not None:
                for device in stops:
                    spent[TRANSMIT][device] += joules[device]
            return
        now_s = self._env.now
        for device, stop_s in stops.items():
            # a battery that is empty before the end gives what it has
            end_s = min(stop_s, empties[device])
            spent[CIRCUIT][device] += self._circuit_w[device] * (end_s - opened_s)
            if joules is not None and stop_s > opened_s:
                share = (end_s - opened_s) / (stop_s - opened_s)
                spent[TRANSMIT][device] += share * joules[device]
            if not away[device]:
                self._asleep_s[device] = stop_s
                continue
            asleep_s = min(now_s, empties[device]) - stop_s
            spent[IDLE][device] += self._sleep_w[device] * max(0.0, asleep_s)
            if "empty" not in away[device]:
                self.cut(device)

    def seconds_to_restart(self, device: int) -> float:
        """Return how long an empty battery takes until the device comes back; inf without
        harvest."""
        battery = self.batteries[device]
        assert battery is not None
        battery.settle(self._env.now)
        return battery.seconds_to(self._restart_j[device])

    def spent_j(self, at_work: Iterable[LocalWork]) -> np.ndarray:
        """Return the joules [K, causes] so far, sleep until now included; of updates at work what
        they have had by now."""
        spent = np.array(self._spent).T
        asleep = np.array(self._sleep_w) * (float(self._env.now) - np.array(self._asleep_s))
        spent[:, IDLE] += np.nan_to_num(asleep)
        for update in at_work:
            spent[update.device, [RECEIVE, COMPUTE, IDLE]] += self._costs(update)
        return spent

    def charge_j(self) -> np.ndarray:
        """Return the charge [K] of the batteries now, inf on mains."""
        now_s = float(self._env.now)
        return np.array([math.inf if b is None else b.settle(now_s) for b in self.batteries])

    def _costs(self, update: LocalWork) -> tuple[float, float, float]:
        """Return the joules of an update by now: received, computed and waited for."""
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
        """Plan what a battery gives from now on, in place of what was planned. Return the instant
        at which it will be empty, of which there will be an event."""
        self._plans[device] += 1
        battery = self.batteries[device]
        if battery is None:
            return math.inf
        now_s = self._env.now
        empty_s = battery.plan(now_s, draws)
        if empty_s != math.inf:
            event = self._env.timeout(max(0.0, empty_s - now_s), (device, self._plans[device]))
            event.callbacks.append(self._empty)
        return empty_s

    def _empty(self, event: simpy.Event) -> None:
        """Say that a battery is empty, unless its draw was planned anew."""
        device, plan = cast(tuple[int, int], event.value)
        if plan == self._plans[device]:
            self._emptied(device)
