"""Simulated time of one trial: updates, uplink slots, presence and energy of the devices.

Each trial has one SimPy environment. A device receives the broadcast, computes, waits for its slot,
transmits and sleeps until its next update. These activities take a single event, at the instant at
which the update is ready. A device that leaves, runs out of battery or recharges has
events of its own, which interrupt its work. Times are in seconds since the start of the trial. The
clock does not depend on what the devices compute.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from operator import attrgetter
from typing import Any, cast

import numpy as np
import simpy

from otafl.clock.local_work import ByDevice, Interval, LocalWork, WorkSlot
from otafl.clock.power import Power
from otafl.devices.availability import Life
from otafl.devices.hardware import Hardware
from otafl.devices.protocols import Rules

_device = attrgetter("device")

Process = Generator[simpy.Event, Any, None]


class TrialClock:
    """Clock of one trial. Each round calls `start`, `admit` and `transmit`, in that order.

    Parameters
    ----------
    hardware : Hardware, arrays [K]
        Hardware of the devices.
    rules : Rules, optional
        Rules of the protocol.
    lives : Sequence of Life or None
        Lives of the K devices, None for a device that never leaves; empty if none leaves.
    log : bool
        Whether to record the activities in `intervals`.

    Attributes
    ----------
    started, lost : int
        Number of updates that were started and that were lost, so far.
    power : Power
        Energy account of the devices.
    """

    def __init__(
        self,
        hardware: Hardware,
        rules: Rules | None = None,
        lives: Sequence[Life | None] = (),
        log: bool = False,
    ) -> None:
        self.env = simpy.Environment()
        self.rules = Rules() if rules is None else rules
        self.stopped = False
        self.started = self.lost = 0
        self.intervals: list[Interval] | None = [] if log else None
        devices = len(hardware.flops_per_s)
        self._devices = devices
        self._away: dict[int, dict[str, float]] = {}  # device -> reason of its absence -> its start
        self._gone: set[int] = set()  # away for good
        self._work: dict[int, LocalWork] = {}
        self._ready: list[LocalWork] = []  # in the order in which they became ready
        self._sending: list[LocalWork] = []
        self._on_air: set[int] = set()
        self._broadcast_s = math.nan
        self._round_s = math.nan
        self._slot = 0  # number of the last periodic slot
        self.power = Power(self.env, hardware, self._on_empty_battery)
        for device, life in enumerate(lives):
            if life is not None:
                self.env.process(self._run_presence(device, life))
        self._settle_instant()

    def get_time_s(self) -> float:
        """Return the simulated seconds since the start."""
        return float(self.env.now)

    def get_available(self) -> np.ndarray:
        """Return the mask [K] of the devices that are present and not at work.

        After `stop` no device is available.
        """
        free = np.full(self._devices, not self.stopped)
        free[[*self._work, *self._on_air]] = False
        free[[*self._away]] = False
        return free

    def are_all_available(self) -> bool:
        """Return whether every device is available."""
        return not (self._work or self._away or self.stopped)

    def count_present(self) -> float:
        """Count the present devices."""
        return float(self._devices - len(self._away))

    def get_busy(self) -> list[int]:
        """Return the devices with an update that has not been sent, in ascending order."""
        return sorted(self._work)

    def compute_spent_j(self) -> np.ndarray:
        """Compute the energy so far in joules, [K, causes], including updates at work."""
        return self.power.compute_spent_j(self._work.values())

    def wait_for_devices(self) -> bool:
        """Advance until a device is available or at work. Return False if this never happens."""
        return self.wait_for_any([self])

    @staticmethod
    def wait_for_any(trials: Sequence[TrialClock]) -> bool:
        """Advance trials whose slots open together until one of them has a device.

        Returns False if this never happens.
        """
        while trials and not any(one._work or len(one._away) < one._devices for one in trials):
            coming = [one for one in trials if len(one._gone) < one._devices]
            if not coming:
                return False
            first = min(coming, key=lambda one: one.env.peek())
            first.env.step()
            first._settle_instant()  # devices can return together
            for one in trials:
                one.wait_until(first.get_time_s())
        return True

    def start(
        self,
        round: int,
        devices: Sequence[int],
        downlink_s: Sequence[float],
        compute_s: Sequence[float],
        compute_w: Sequence[float],
        broadcast_s: float | None = None,
    ) -> None:
        """Start a round: the broadcast and the local work of its participants.

        Parameters
        ----------
        round : int
            Number of the round.
        devices : Sequence of int
            Participants, which must be available.
        downlink_s : Sequence of float
            Seconds until each has the model.
        compute_s, compute_w : Sequence of float
            Duration and power of each one's local work.
        broadcast_s : float, optional
            Seconds of the broadcast; the longest downlink_s if not given.

        Raises
        ------
        ValueError
            If a device is not available, or a duration is negative or not finite.
        """
        env, work = self.env, self._work
        computed = self._on_computed
        now_s = self._round_s = env.now
        longest = max(downlink_s, default=0.0) if broadcast_s is None else broadcast_s
        self._broadcast_s = now_s + longest
        if self.rules.broadcast_first:
            env.timeout(longest)
        for device, down, seconds, watts in zip(
            devices, downlink_s, compute_s, compute_w, strict=True
        ):
            if device in work or device in self._away:
                raise ValueError(
                    f"device {device} is busy with an earlier update, or away; "
                    "participants must be available"
                )
            if not 0 <= down + seconds < math.inf:
                raise ValueError(
                    f"seconds must be finite and not negative, got {down} and {seconds}"
                )
            ready_s = now_s + (down + seconds)
            update = LocalWork(device, round, now_s, now_s + down, ready_s, watts)
            env.timeout(down + seconds, update).callbacks.append(computed)
            work[device] = update
            self.power.work(update)
        self.started += len(devices)

    def admit(self) -> WorkSlot:
        """Advance to the opening of the slot, and return the slot."""
        self.reach_slot()
        return self.open()

    def reach_slot(self) -> None:
        """Advance to the instant at which the slot opens by the rules of the protocol.

        All other events of that instant come first, so an update that is ready at the deadline is
        on time.
        """
        rules, env, timer, step = self.rules, self.env, self._build_timer(), self.env.step
        ready, work, wanted = self._ready, self._work, rules.ready
        first_s = self._broadcast_s if rules.broadcast_first else -math.inf
        while timer is None or not timer.processed:
            count = len(ready)
            if wanted and (count >= wanted or count >= len(work)) and env.now >= first_s:
                break
            step()
        self._settle_instant()

    def wait_until(self, at_s: float) -> None:
        """Advance to an instant, unless it has passed."""
        if at_s > self.env.now:
            self.env.run(until=at_s)
            self._settle_instant()

    def transmit(
        self,
        airtime_s: float,
        joules: ByDevice[float] | None = None,
        on_air_s: ByDevice[float] | None = None,
    ) -> None:
        """Advance by the slot's airtime. The devices of the slot are then available again.

        Parameters
        ----------
        airtime_s : float
            Duration of the slot in seconds.
        joules : sequence or mapping, optional
            Energy that each transmitter's amplifier draws.
        on_air_s : sequence or mapping, optional
            Duration of each transmission from the start of the slot, after which the device sleeps;
            the whole slot if not given.

        Raises
        ------
        ValueError
            If airtime_s is negative or not finite.
        """
        if not 0 <= airtime_s < math.inf:
            raise ValueError(f"airtime_s must be finite and not negative, got {airtime_s}")
        env, power = self.env, self.power
        opened_s = env.now
        stops = {
            update.device: opened_s
            + (airtime_s if on_air_s is None else min(airtime_s, on_air_s[update.device]))
            for update in self._sending
        }
        empties = power.send(stops, joules)
        if airtime_s:
            end = env.timeout(airtime_s)
            while not end.processed:
                env.step()
        self._on_air.clear()
        for update in self._sending if self.intervals is not None else ():
            end_s = min(stops[update.device], empties[update.device])
            self._record(Interval(update.device, update.round, "transmit", opened_s, end_s))
        power.charge_slot(opened_s, stops, empties, joules, self._away)
        self._sending = []

    def list_transmitters(self) -> list[int]:
        """Return the devices of the open slot, in ascending order."""
        return [update.device for update in self._sending]

    def history(self) -> list[Interval]:
        """Return all intervals so far; those of devices that are away or at work end now."""
        now_s = self.env.now
        current = [
            Interval(device, -1, why, since_s, now_s)
            for device, reasons in sorted(self._away.items())
            for why, since_s in reasons.items()
        ]
        for update in self._work.values():
            current += update.list_intervals(now_s)
        return [*(self.intervals or ()), *(one for one in current if one.has_duration)]

    def stop(self) -> None:
        """End the trial: its time no longer advances, and none of its devices is available."""
        self.stopped = True

    def _build_timer(self) -> simpy.Event | None:
        """Return the event at which the slot opens by its period or deadline, None without one."""
        rules, env = self.rules, self.env
        if rules.period_s != math.inf:
            slot = max(self._slot + 1, int(env.now / rules.period_s))
            while slot * rules.period_s < env.now:
                slot += 1
            self._slot = slot
            return env.timeout(max(0.0, slot * rules.period_s - env.now))
        if rules.deadline_s != math.inf:
            return env.timeout(max(0.0, self._round_s + rules.deadline_s - env.now))
        return None

    def _settle_instant(self) -> None:
        """Process all other events of this instant."""
        env = self.env
        while env.peek() <= env.now:
            env.step()

    def open(self) -> WorkSlot:
        """Open the slot: admit ready devices, and drop the others if the rules say so."""
        now_s = self.env.now
        self._sending = self._ready[: self.rules.max_ready]
        del self._ready[: self.rules.max_ready]
        self._sending.sort(key=_device)
        self._on_air.update(map(_device, self._sending))
        for update in self._sending:
            self.power.charge_ended(update)
            del self._work[update.device]
            if self.intervals is not None:
                self._record(*update.list_intervals(now_s))
        if self.rules.late == "drop":
            for update in list(self._work.values()):
                self._lose(update)
                self.power.sleep(update.device)
        return WorkSlot(
            now_s,
            [update.device for update in self._sending],
            [update.round for update in self._sending],
        )

    def _on_computed(self, done: simpy.Event) -> None:
        """Mark the update of a device as ready, unless it was lost."""
        update = cast(LocalWork, done.value)
        if not update.lost:
            update.ready = True
            self._ready.append(update)

    def _lose(self, update: LocalWork) -> None:
        """Drop the update of a device and charge its energy."""
        now_s = self.env.now
        update.lost = True
        self.lost += 1
        del self._work[update.device]
        if update.ready:
            self._ready.remove(update)
        self.power.charge_ended(update)
        self._record(Interval(update.device, update.round, "lost", update.sent_s, now_s))

    def _on_empty_battery(self, device: int) -> None:
        """Remove a device with an empty battery until it is charged again."""
        self._remove_device(device, "empty")
        seconds = self.power.compute_seconds_to_restart(device)
        if seconds == math.inf:
            self._gone.add(device)
        else:
            charged = self.env.timeout(seconds)
            charged.callbacks.append(lambda _: self._end_absence(device, "empty"))

    def _remove_device(self, device: int, why: str) -> None:
        """Remove a device from now on; an update at work is lost."""
        now_s = self.env.now
        update = self._work.get(device)
        if update is not None:
            self._lose(update)
        elif device not in self._away:
            self.power.wake(device)
        self._away.setdefault(device, {})[why] = now_s
        if why == "empty" or device not in self._on_air:  # else it completes its transmission
            self.power.cut(device)

    def _end_absence(self, device: int, why: str) -> None:
        """End one reason for a device's absence; without another reason the device is back."""
        since_s = self._away[device].pop(why)
        self._record(Interval(device, -1, why, since_s, self.env.now))
        if not self._away[device]:
            del self._away[device]
            if device not in self._on_air:
                self.power.sleep(device)

    def _run_presence(self, device: int, life: Life) -> Process:
        """Remove and return a device at the instants of its life."""
        for at_s, there in life:
            if at_s > self.env.now:
                yield self.env.timeout(at_s - self.env.now)
            left = "left" in self._away.get(device, ())
            if there and left:
                self._end_absence(device, "left")
            elif not there and not left:
                self._remove_device(device, "left")
        if "left" in self._away.get(device, ()):
            self._gone.add(device)

    def _record(self, *intervals: Interval) -> None:
        """Add intervals to the timeline, if one is recorded."""
        if self.intervals is not None:
            self.intervals += [one for one in intervals if one.has_duration]
