"""Simulate a trial's time: when devices are ready, when the uplink slot opens, who makes it, who is
there at all, and what each device's parts draw meanwhile.

One SimPy environment a trial. A device receives the broadcast, computes, waits for its slot,
transmits and sleeps until it is asked again; that is one event, the instant at which its update is
ready, since nothing else can happen at the others. Leaving and coming back, running out of battery,
recharging and rebooting are events of their own, and take the device away from whatever it is
doing. Times are in seconds since the trial's start. Nothing here knows what is computed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterable, Sequence
from operator import attrgetter
from typing import Any, cast

import numpy as np
import simpy

from otafl.clock import presence
from otafl.clock.local_work import ByDevice, Interval, LocalWork, Slot
from otafl.clock.power import Power, schedule_at
from otafl.clock.presence import Presence
from otafl.devices.activities import CAUSES
from otafl.devices.availability import Life
from otafl.devices.hardware import Hardware
from otafl.devices.protocols import Rules

_device = attrgetter("device")

Process = Generator[simpy.Event, Any, None]


class TrialClock:
    """Keep the time of one trial: `start`, `admit`, `transmit` for each round, in that order.

    hardware: [K]. lives: K comings and goings, None for a device that never leaves. log: keep
    `list_intervals`. started, lost: updates so far. power: what the devices draw.
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
        self.list_intervals: list[Interval] | None = [] if log else None
        devices = len(hardware.flops_per_s)
        self._devices = devices
        self._away: dict[int, dict[str, float]] = {}  # of those away, why -> since when
        self._gone: set[int] = set()  # away for good
        self._work: dict[int, LocalWork] = {}
        self._ready: list[LocalWork] = []  # in the order in which they became so
        self._sending: list[LocalWork] = []
        self._on_air: set[int] = set()
        self._broadcast_s = math.nan
        self._round_s = math.nan
        self._slot = 0  # number of the last periodic slot
        self.power = Power(self.env, hardware, self._on_empty_battery)
        self._presence = None
        if len(lives) > presence.MANY and self.power.plain and not log:
            self._presence = Presence(lives)
        else:
            for device, life in enumerate(lives):
                if life is not None:
                    self.env.process(self._run_presence(device, life))
        self._departing: dict[int, float] = {}  # devices at work, when they leave
        self._settle_instant()

    def take_over(
        self, now_s: float, started: int, spent: np.ndarray, asleep_s: np.ndarray
    ) -> None:
        """Go on from an instant at which all devices sleep; nothing must have happened before.

        started: updates so far. spent, asleep_s: [causes, K] joules and [K] instants, which are
        then written to.
        """
        self.env._now = now_s
        self.started = started
        self.power.take_over(spent, asleep_s)

    def get_time_s(self) -> float:
        """Return the simulated seconds since the start."""
        return float(self.env.now)

    def get_available(self) -> np.ndarray:
        """Return the devices [K] bool that are there and not at work; none once the trial has
        stopped."""
        free = np.full(self._devices, not self.stopped)
        free[[*self._work, *self._on_air]] = False
        free[[*self._away]] = False
        if self._presence is not None:
            free &= [self._is_present(device) for device in range(self._devices)]
        return free

    def are_all_available(self) -> bool:
        """Return whether every device is known to be."""
        return not (self._work or self._away or self.stopped or self._presence)

    @property
    def must_ask(self) -> bool:
        """Whether presence is known only by asking one device at a time."""
        return self._presence is not None

    def select_first_available(self, devices: Iterable[int], wanted: int) -> list[int]:
        """Return those of the devices that are available, the first so many."""
        if self.stopped:
            return []
        busy = {*self._work, *self._on_air}
        free = (k for k in devices if k not in busy and k not in self._away and self._is_present(k))
        return list(itertools.islice(free, wanted))

    def count_present(self) -> float:
        """Return how many devices are there; nan where that would take asking for each."""
        return math.nan if self.must_ask else float(self._devices - len(self._away))

    def get_busy(self) -> list[int]:
        """Return the devices with an update that has not been sent, ascending."""
        return sorted(self._work)

    def compute_spent_j(self) -> np.ndarray:
        """Return the joules [K, causes] so far; of updates at work what they have had by now."""
        spent = np.empty((self._devices, len(CAUSES)))
        self.write_spent_j(spent)
        return spent

    def write_spent_j(self, spent: np.ndarray) -> None:
        """Write what `compute_spent_j` returns, [K, causes]."""
        self.power.compute_spent_j(self._work.values(), spent)

    def wait_for_devices(self) -> bool:
        """Advance until a device is available or at work. Return False if that will never be."""
        env = self.env
        if self._presence is not None:
            return self._wait(self._presence)
        while not self._work and len(self._away) == self._devices:
            if len(self._gone) == self._devices:
                return False
            env.step()
        return True

    def _wait(self, presence: Presence) -> bool:
        """Wait for one of those who have to be asked for."""
        env = self.env
        while not self._work and not self.select_first_available(range(self._devices), 1):
            if self.stopped:
                return True
            next_s = presence.find_next_return_s(env.now)
            if next_s == math.inf and not self._away:
                return False
            if next_s < env.peek():
                schedule_at(env, next_s)
            env.step()
        return True

    def _is_present(self, device: int) -> bool:
        """Say whether a device has not left."""
        return (
            self._presence is None or self._presence.get_course(device, float(self.env.now)).there
        )

    def start(
        self,
        round: int,
        devices: Sequence[int],
        downlink_s: Sequence[float],
        compute_s: Sequence[float],
        compute_w: Sequence[float],
        broadcast_s: float | None = None,
    ) -> None:
        """Broadcast for `broadcast_s` (the longest of downlink_s if not given).

        Each of the devices, which must be available, has the model after its downlink_s and then
        computes for compute_s at compute_w.
        """
        if not math.isnan(self._round_s):
            raise RuntimeError("start before the last round's slot was admitted")
        env, work, plain = self.env, self._work, self.power.plain
        computed = self._on_computed
        now_s = self._round_s = env.now
        longest = max(downlink_s, default=0.0) if broadcast_s is None else broadcast_s
        self._broadcast_s = now_s + longest
        if self.rules.broadcast_first:
            env.timeout(longest)
        for device, down, seconds, watts in zip(
            devices, downlink_s, compute_s, compute_w, strict=True
        ):
            if device in work or device in self._away or not self._is_present(device):
                raise ValueError(f"device {device} is busy with an earlier update, or away")
            if not 0 <= down + seconds < math.inf:
                raise ValueError(
                    f"seconds must be finite and not negative, got {down} and {seconds}"
                )
            if self._presence is not None:
                self._schedule_departure(device, self._presence.get_course(device, now_s).next_s)
            update = LocalWork(env, device, round, down, seconds, watts, computed)
            work[device] = update
            if not plain:
                self.power.work(update)
        self.started += len(devices)

    def admit(self) -> Slot:
        """Advance to the slot's opening, and return it."""
        self.reach_slot()
        return self.open()

    def reach_slot(self) -> None:
        """Advance to the instant at which the slot could open, by the rules; what happens at that
        very instant happens before it, so being ready at the deadline is on time."""
        if math.isnan(self._round_s):
            raise RuntimeError("admit before start")
        rules, env, timer, step = self.rules, self.env, self._build_timer(), self.env.step
        ready, work, wanted = self._ready, self._work, rules.ready
        first_s = self._broadcast_s if rules.broadcast_first else -math.inf
        while timer is None or not timer.processed:
            count = len(ready)
            if wanted and (count >= wanted or count >= len(work)) and env.now >= first_s:
                break
            step()
        self._settle_instant()
        self._round_s = math.nan

    def wait_until(self, at_s: float) -> None:
        """Advance to an instant, if it is yet to come."""
        env = self.env
        if at_s > env.now:
            end = schedule_at(env, at_s)
            while not end.processed:
                env.step()
            self._settle_instant()

    def transmit(
        self,
        airtime_s: float,
        joules: ByDevice[float] | None = None,
        on_air_s: ByDevice[float] | None = None,
        crashed: ByDevice[bool] | None = None,
        downtime_s: float = 0.0,
    ) -> None:
        """Advance by the `airtime_s` of the uplink slot; those admitted are then available again.

        joules: by device, what each that transmits draws for what it radiates. on_air_s: that its
        transmission lasts, from the start of the slot (all of it if not given); it sleeps then.
        crashed: whether it is away for `downtime_s` after the slot.
        """
        if not math.isnan(self._round_s):
            raise RuntimeError("transmit before admit")
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
        for update in self._sending if self.list_intervals is not None else ():
            end_s = min(stops[update.device], empties.get(update.device, math.inf))
            self._record(update.device, update.round, "transmit", opened_s, end_s)
        power.charge_slot(opened_s, stops, empties, joules, self._away)
        if crashed is not None and downtime_s:
            for device in stops:
                if crashed[device] and device not in self._away and self._is_present(device):
                    self._remove_device(device, "crashed")
                    env.process(self._return_device(device, "crashed", downtime_s))
        self._sending = []

    def list_transmitters(self) -> list[int]:
        """Return the devices of the slot that is open, ascending."""
        return [update.device for update in self._sending]

    def history(self) -> list[Interval]:
        """Return the intervals so far, those of devices that are away or at work now until now."""
        now_s = self.env.now
        current = [
            Interval(device, -1, why, since_s, now_s)
            for device, reasons in sorted(self._away.items())
            for why, since_s in reasons.items()
        ]
        for update in self._work.values():
            current += update.list_intervals(now_s)
        return [*(self.list_intervals or ()), *(one for one in current if one.has_duration)]

    def stop(self) -> None:
        """End the trial: its time stands still, none of its devices is available."""
        self.stopped = True

    def _build_timer(self) -> simpy.Event | None:
        """Return the event of the instant at which the slot opens in any case."""
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
        """Let everything else happen that happens now."""
        env = self.env
        while env.peek() <= env.now:
            env.step()

    def open(self) -> Slot:
        """Open the slot: part those at work into those who transmit and the others."""
        now_s = self.env.now
        self._sending = self._ready[: self.rules.max_ready]
        del self._ready[: self.rules.max_ready]
        self._sending.sort(key=_device)
        self._on_air.update(map(_device, self._sending))
        self.power.charge_ready(self._sending)
        for update in self._sending:
            del self._work[update.device]
            if self.list_intervals is not None:
                self.list_intervals += [
                    one for one in update.list_intervals(now_s) if one.has_duration
                ]
        if self.rules.late == "drop":
            for update in list(self._work.values()):
                self._lose(update)
                self.power.sleep(update.device)
        return Slot(
            now_s,
            [update.device for update in self._sending],
            [update.round for update in self._sending],
        )

    def _on_computed(self, done: simpy.Event) -> None:
        """Note that a device's time has passed: its update is ready, unless it was lost."""
        update = cast(LocalWork, done)
        if not update.lost:
            update.ready = True
            self._ready.append(update)

    def _lose(self, update: LocalWork) -> None:
        """Let a device drop what it has."""
        now_s = self.env.now
        update.lost = True
        self.lost += 1
        del self._work[update.device]
        if update.ready:
            self._ready.remove(update)
        self.power.charge_ended(update)
        if update.sent_s < now_s:
            self._record(update.device, update.round, "lost", update.sent_s, now_s)

    def _on_empty_battery(self, device: int) -> None:
        """Take a device away whose battery is empty, until it is charged."""
        self._remove_device(device, "empty")
        seconds = self.power.compute_seconds_to_restart(device)
        if seconds == math.inf:
            self._gone.add(device)
        else:
            self.env.process(self._return_device(device, "empty", seconds))

    def _remove_device(self, device: int, why: str) -> None:
        """Take a device away from now on; an update that it is at work on is lost."""
        now_s = self.env.now
        update = self._work.get(device)
        if update is not None:
            self._lose(update)
        elif device not in self._away:
            self.power.wake(device)
        self._away.setdefault(device, {})[why] = now_s
        if why == "empty" or device not in self._on_air:  # else it sends to the end first
            self.power.cut(device)

    def _end_absence(self, device: int, why: str) -> None:
        """Note that what kept a device away is over."""
        since_s = self._away[device].pop(why)
        self._record(device, -1, why, since_s, self.env.now)
        if not self._away[device]:
            del self._away[device]
            if device not in self._on_air:
                self.power.sleep(device)

    def _run_presence(self, device: int, life: Life) -> Process:
        """Let a device leave and come back all its life."""
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

    def _schedule_departure(self, device: int, at_s: float) -> None:
        """Let there be an event when a device leaves that begins to work."""
        if at_s < math.inf and self._departing.get(device) != at_s:
            self._departing[device] = at_s
            schedule_at(self.env, at_s, device).callbacks.append(self._on_departure)

    def _on_departure(self, event: simpy.Event) -> None:
        """Let a device leave: an update that it is at work on is lost."""
        device = cast(int, event.value)
        del self._departing[device]
        update = self._work.get(device)
        if update is not None:
            self._lose(update)

    def _return_device(self, device: int, why: str, seconds: float) -> Process:
        """Bring a device back after so long."""
        yield self.env.timeout(seconds)
        self._end_absence(device, why)

    def _record(self, device: int, round: int, activity: str, start_s: float, end_s: float) -> None:
        one = Interval(device, round, activity, start_s, end_s)
        if self.list_intervals is not None and one.has_duration:
            self.list_intervals.append(one)
