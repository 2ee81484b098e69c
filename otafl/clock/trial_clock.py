"""Simulated time: when devices are ready, when the uplink slot opens, who makes it, who is there at
all, and what each device's parts draw meanwhile.

One SimPy environment a trial. A device receives the broadcast, computes, waits for its slot,
transmits and sleeps until it is asked again; that is one event, the instant at which its update is
ready, since nothing else can happen at the others. Leaving and coming back, running out of battery,
recharging and rebooting are events of their own, and take the device away from whatever it is
doing. Times are in seconds since the trial's start. Nothing here knows what is computed.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from typing import Any, cast

import numpy as np
import simpy

from otafl.clock.local_work import Interval, LocalWork, Slot
from otafl.devices.battery import Draw
from otafl.devices.hardware import Hardware
from otafl.devices.protocol import Rules
from otafl.devices.supply import CIRCUIT, COMPUTE, IDLE, RECEIVE, TRANSMIT, Supply

Process = Generator[simpy.Event, Any, None]

Life = Iterator[tuple[float, bool]]
"""A device's comings and goings, see `otafl.devices.availability`."""


class TrialClock:
    """The clock of one trial: `start`, `admit`, `transmit` for each round, in that order.

    hardware: [K]. lives: K comings and goings, None for a device that never leaves. log: keep
    `intervals`. started, lost: updates so far.
    """

    def __init__(
        self,
        hardware: Hardware,
        rules: Rules | None = None,
        lives: Sequence[Life | None] | None = None,
        log: bool = False,
    ) -> None:
        self.env = simpy.Environment()
        self.rules = Rules() if rules is None else rules
        self.stopped = False
        self.started = self.lost = 0
        self.intervals: list[Interval] | None = [] if log else None
        devices = len(hardware.flops_per_s)
        self._devices = devices
        self._supply = Supply(hardware)
        self._away: list[dict[str, float]] = [{} for _ in range(devices)]  # why -> since when
        self._absent = 0
        self._gone: set[int] = set()  # away for good
        self._plans = [0] * devices  # how often a battery's draw was planned anew
        self._work: dict[int, LocalWork] = {}
        self._ready: list[LocalWork] = []  # in the order in which they became so
        self._sending: list[LocalWork] = []
        self._on_air: set[int] = set()
        self._broadcast_s = math.nan
        self._round_s = math.nan
        self._slot = 0  # number of the last periodic slot
        for device in range(devices):
            self._draw(device, [(0.0, self._supply.sleep_w[device])])
        for device, life in enumerate(lives or ()):
            if life is not None:
                self.env.process(self._come_and_go(device, life))
        self._settle_instant()

    def now(self) -> float:
        """Simulated seconds since the start."""
        return float(self.env.now)

    def available(self) -> np.ndarray:
        """[K] bool: devices that are there and not at work; none once the trial has stopped."""
        free = np.full(self._devices, not self.stopped)
        free[[*self._work, *self._on_air]] = False
        if self._absent:
            free[[k for k, why in enumerate(self._away) if why]] = False
        return free

    def all_available(self) -> bool:
        """Whether every device is."""
        return not (self._work or self._absent or self.stopped)

    def present(self) -> int:
        """How many devices are there."""
        return self._devices - self._absent

    def at_work(self) -> list[int]:
        """The devices with an update that has not been sent, ascending."""
        return sorted(self._work)

    def spent_j(self) -> np.ndarray:
        """[K, causes] joules so far; of updates at work only what they have had by now."""
        now_s = float(self.env.now)
        spent = self._supply.spent_j(now_s)
        for update in self._work.values():
            spent[update.device, [RECEIVE, COMPUTE, IDLE]] += self._costs(update, now_s)
        return spent

    def charge_j(self) -> np.ndarray:
        """[K] charge of the batteries now, inf on mains."""
        return self._supply.charge_j(float(self.env.now))

    def harvested_j(self) -> np.ndarray:
        """[K] taken up by the batteries so far, 0 on mains."""
        return self._supply.harvested_j(float(self.env.now))

    def wait_for_devices(self) -> bool:
        """Advances until a device is available or at work. False if that will never be."""
        env = self.env
        while not self._work and self._absent == self._devices:
            if len(self._gone) == self._devices:
                return False
            env.step()
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
        """Broadcasts for `broadcast_s` (the longest of downlink_s if not given). Each of the
        devices, which must be available, has the model after its downlink_s and then computes for
        compute_s at compute_w."""
        if not math.isnan(self._round_s):
            raise RuntimeError("start before the last round's slot was admitted")
        env, work, supply = self.env, self._work, self._supply
        computed = self._computed
        now_s = self._round_s = env.now
        longest = max(downlink_s, default=0.0) if broadcast_s is None else broadcast_s
        self._broadcast_s = now_s + longest
        if self.rules.broadcast_first:
            env.timeout(longest)
        for device, down, seconds, watts in zip(
            devices, downlink_s, compute_s, compute_w, strict=True
        ):
            if device in work or (self._absent and self._away[device]):
                raise ValueError(f"device {device} is busy with an earlier update, or away")
            if not 0 <= down + seconds < math.inf:
                raise ValueError(
                    f"seconds must be finite and not negative, got {down} and {seconds}"
                )
            update = LocalWork(env, device, round, down, seconds, watts, computed)
            work[device] = update
            if not supply.plain:
                supply.wake(device, now_s)
                self._draw(
                    device,
                    [
                        (now_s, supply.receive_w[device]),
                        (update.began_s, watts),
                        (update.ready_s, supply.idle_w[device]),
                    ],
                )
        self.started += len(devices)

    def admit(self) -> Slot:
        """Advances to the slot's opening, by the rules; what happens at that very instant happens
        before it, so being ready at the deadline is on time."""
        if math.isnan(self._round_s):
            raise RuntimeError("admit before start")
        rules, env, timer, step = self.rules, self.env, self._timer(), self.env.step
        ready, work, wanted = self._ready, self._work, rules.ready
        first_s = self._broadcast_s if rules.broadcast_first else -math.inf
        while timer is None or not timer.processed:
            count = len(ready)
            if wanted and (count >= wanted or count >= len(work)) and env.now >= first_s:
                break
            step()
        self._settle_instant()
        self._round_s = math.nan
        return self._open()

    def transmit(
        self,
        airtime_s: float,
        joules: Sequence[float] | None = None,
        on_air_s: Sequence[float] | None = None,
        crashed: Sequence[bool] | None = None,
        downtime_s: float = 0.0,
    ) -> None:
        """The uplink slot: advances by `airtime_s`; those admitted are then available again.

        joules: [K] that each draws for what it radiates. on_air_s: [K] that its transmission lasts,
        from the start of the slot (all of it if not given); it sleeps then. crashed: [K], devices
        that are away for `downtime_s` after the slot.
        """
        if not math.isnan(self._round_s):
            raise RuntimeError("transmit before admit")
        if not 0 <= airtime_s < math.inf:
            raise ValueError(f"airtime_s must be finite and not negative, got {airtime_s}")
        env, supply = self.env, self._supply
        opened_s = env.now
        stops = {
            update.device: opened_s
            + (airtime_s if on_air_s is None else min(airtime_s, on_air_s[update.device]))
            for update in self._sending
        }
        empties = {} if supply.plain else self._power_on(stops, joules)
        if airtime_s:
            end = env.timeout(airtime_s)
            while not end.processed:
                env.step()
        self._on_air.clear()
        for update in self._sending if self.intervals is not None else ():
            end_s = min(stops[update.device], empties.get(update.device, math.inf))
            self._record(update.device, update.round, "transmit", opened_s, end_s)
        if not supply.plain:
            self._power_off(opened_s, stops, empties, joules)
        elif joules is not None:
            spent = supply.spent[TRANSMIT]
            for device in stops:
                spent[device] += joules[device]
        if crashed is not None and downtime_s:
            for device in stops:
                if crashed[device] and not self._away[device]:
                    self._go(device, "crashed")
                    env.process(self._reboot(device, downtime_s))
        self._sending = []

    def _power_on(
        self, stops: dict[int, float], joules: Sequence[float] | None
    ) -> dict[int, float]:
        """Plans what the transmissions that end at `stops` draw; when each battery is empty."""
        now_s, supply = self.env.now, self._supply
        empties = {}
        for device, stop_s in stops.items():
            watts = supply.circuit_w[device]
            if joules is not None and stop_s > now_s:
                watts += joules[device] / (stop_s - now_s)
            draws = [(now_s, watts), (stop_s, supply.sleep_w[device])]
            empties[device] = self._draw(device, draws)
        return empties

    def _power_off(
        self,
        opened_s: float,
        stops: dict[int, float],
        empties: dict[int, float],
        joules: Sequence[float] | None,
    ) -> None:
        """Charges the transmissions of a slot that has ended; the devices sleep."""
        now_s, supply = self.env.now, self._supply
        for device, stop_s in stops.items():
            # a battery that is empty before the end gives what it has
            end_s = min(stop_s, empties[device])
            supply.spend(device, CIRCUIT, supply.circuit_w[device] * (end_s - opened_s))
            if joules is not None and stop_s > opened_s:
                share = (end_s - opened_s) / (stop_s - opened_s)
                supply.spend(device, TRANSMIT, share * joules[device])
            if not self._away[device]:
                supply.sleep(device, stop_s)
                continue
            asleep_s = min(now_s, empties[device]) - stop_s
            supply.spend(device, IDLE, supply.sleep_w[device] * max(0.0, asleep_s))
            if "empty" not in self._away[device]:
                self._draw(device, [(now_s, 0.0)])

    def history(self) -> list[Interval]:
        """The intervals so far, those of devices that are away or at work now until now."""
        now_s = self.env.now
        current = [
            Interval(device, -1, why, since_s, now_s)
            for device, reasons in enumerate(self._away)
            for why, since_s in reasons.items()
        ]
        for update in self._work.values():
            current += update.intervals(now_s)
        return [*(self.intervals or ()), *(one for one in current if one.lasts)]

    def stop(self) -> None:
        """Ends the trial: its time stands still, none of its devices is available."""
        self.stopped = True

    def _timer(self) -> simpy.Event | None:
        """Of the instant at which the slot opens in any case."""
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
        """Everything else that happens now."""
        env = self.env
        while env.peek() <= env.now:
            env.step()

    def _open(self) -> Slot:
        """Parts those at work into those who transmit and the others."""
        now_s = self.env.now
        self._sending = self._ready[: self.rules.most]
        del self._ready[: self.rules.most]
        self._sending.sort(key=_device)
        self._on_air.update(map(_device, self._sending))
        plain, computed = self._supply.plain, self._supply.spent[COMPUTE]
        for update in self._sending:
            del self._work[update.device]
            if plain:
                joules = update.compute_w * (update.ready_s - update.began_s)
                computed[update.device] += joules
            else:
                self._settle(update, now_s)
            if self.intervals is not None:
                self.intervals += [one for one in update.intervals(now_s) if one.lasts]
        if self.rules.late == "drop":
            for update in list(self._work.values()):
                self._lose(update)
                self._sleep(update.device)
        return Slot(
            now_s,
            [update.device for update in self._sending],
            [update.round for update in self._sending],
        )

    def _computed(self, done: simpy.Event) -> None:
        """A device's time has passed: its update is ready, unless it was lost."""
        update = cast(LocalWork, done)
        if not update.lost:
            update.ready = True
            self._ready.append(update)

    def _lose(self, update: LocalWork) -> None:
        """The device drops what it has."""
        now_s = self.env.now
        update.lost = True
        self.lost += 1
        del self._work[update.device]
        if update.ready:
            self._ready.remove(update)
        self._settle(update, now_s)
        if update.sent_s < now_s:
            self._record(update.device, update.round, "lost", update.sent_s, now_s)

    def _costs(self, update: LocalWork, now_s: float) -> tuple[float, float, float]:
        """Joules of an update by now: received, computed and waited for."""
        device = update.device
        if update.ready:
            received, computed = update.began_s - update.sent_s, update.ready_s - update.began_s
            waited = now_s - update.ready_s
        else:
            received = min(now_s, update.began_s) - update.sent_s
            computed, waited = max(0.0, now_s - update.began_s), 0.0
        return (
            self._supply.receive_w[device] * received,
            update.compute_w * computed,
            self._supply.idle_w[device] * waited,
        )

    def _settle(self, update: LocalWork, now_s: float) -> None:
        received, computed, waited = self._costs(update, now_s)
        spend, device = self._supply.spend, update.device
        spend(device, RECEIVE, received)
        spend(device, COMPUTE, computed)
        spend(device, IDLE, waited)

    def _sleep(self, device: int) -> None:
        """It has nothing to do from now on."""
        now_s = self.env.now
        self._supply.sleep(device, now_s)
        self._draw(device, [(now_s, self._supply.sleep_w[device])])

    def _draw(self, device: int, draws: Sequence[Draw]) -> float:
        """What a battery gives from now on, in place of what was planned; the instant at which it
        will be empty, of which there will be an event."""
        now_s = self.env.now
        empty_s = self._supply.plan(device, now_s, draws)
        self._plans[device] += 1
        if empty_s != math.inf:
            event = self.env.timeout(max(0.0, empty_s - now_s), (device, self._plans[device]))
            event.callbacks.append(self._emptied)
        return empty_s

    def _emptied(self, event: simpy.Event) -> None:
        """A battery is empty, unless its draw was planned anew."""
        device, plan = cast(tuple[int, int], event.value)
        if plan != self._plans[device]:
            return
        self._go(device, "empty")
        seconds = self._supply.seconds_to_restart(device, self.env.now)
        if seconds == math.inf:
            self._gone.add(device)
        else:
            self.env.process(self._recharge(device, seconds))

    def _go(self, device: int, why: str) -> None:
        """The device is away from now on; an update that it is at work on is lost."""
        now_s = self.env.now
        update = self._work.get(device)
        if update is not None:
            self._lose(update)
        elif not self._away[device]:
            self._supply.wake(device, now_s)
        if not self._away[device]:
            self._absent += 1
        self._away[device][why] = now_s
        if why == "empty" or device not in self._on_air:  # else it sends to the end first
            self._draw(device, [(now_s, 0.0)])

    def _back(self, device: int, why: str) -> None:
        """What kept the device away is over."""
        since_s = self._away[device].pop(why)
        self._record(device, -1, why, since_s, self.env.now)
        if not self._away[device]:
            self._absent -= 1
            if device not in self._on_air:
                self._sleep(device)

    def _come_and_go(self, device: int, life: Life) -> Process:
        for at_s, there in life:
            if at_s > self.env.now:
                yield self.env.timeout(at_s - self.env.now)
            if there and "left" in self._away[device]:
                self._back(device, "left")
            elif not there and "left" not in self._away[device]:
                self._go(device, "left")
        if "left" in self._away[device]:
            self._gone.add(device)

    def _recharge(self, device: int, seconds: float) -> Process:
        yield self.env.timeout(seconds)
        self._back(device, "empty")

    def _reboot(self, device: int, seconds: float) -> Process:
        yield self.env.timeout(seconds)
        self._back(device, "crashed")

    def _record(self, device: int, round: int, activity: str, start_s: float, end_s: float) -> None:
        one = Interval(device, round, activity, start_s, end_s)
        if self.intervals is not None and one.lasts:
            self.intervals.append(one)


def _device(update: LocalWork) -> int:
    return update.device
