"""Simulated time: when devices are ready, when the uplink slot opens, who makes it.

One SimPy environment a trial. In a round the server broadcasts, each device that takes part has
an event at which its update is ready, and the uplink slot opens when all are ready or at the
deadline. All times are in seconds since the trial's start. Nothing here knows what is computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import simpy

from otafl.clock_config import (
    AnyComputeConfig,
    ClassesComputeConfig,
    FixedComputeConfig,
    Late,
    LognormalComputeConfig,
)


@dataclass(frozen=True)
class Speeds:
    """flops_per_s, frequency_hz, kappa: float64 of one shape, [K] for a trial or [S, K] for a
    stack. kappa is in J s^2 / cycle^3."""

    flops_per_s: np.ndarray
    frequency_hz: np.ndarray
    kappa: np.ndarray

    @staticmethod
    def stack(trials: Sequence[Speeds]) -> Speeds:
        """The speeds [K] of S trials as [S, K]."""
        return Speeds(
            np.stack([speeds.flops_per_s for speeds in trials]),
            np.stack([speeds.frequency_hz for speeds in trials]),
            np.stack([speeds.kappa for speeds in trials]),
        )

    def rows(self, trial: np.ndarray, device: np.ndarray) -> Speeds:
        """Of [S, K], the pairs trial [N], device [N] as [N]."""
        at = (trial, device)
        return Speeds(self.flops_per_s[at], self.frequency_hz[at], self.kappa[at])


def device_speeds(config: AnyComputeConfig, devices: int, generator: np.random.Generator) -> Speeds:
    """The speeds [K] of a trial's devices. The first devices of a larger population are those of
    a smaller one under the same generator."""
    kappa = np.full(devices, config.kappa)
    if isinstance(config, FixedComputeConfig):
        flops_per_s = np.full(devices, config.flops_per_s)
    elif isinstance(config, LognormalComputeConfig):
        z = generator.standard_normal(devices)
        flops_per_s = config.median_flops_per_s * np.exp(config.sigma * z)
    elif isinstance(config, ClassesComputeConfig):
        of = _classes(config, devices, generator)
        flops_per_s = np.array([c.flops_per_s for c in config.classes])[of]
        own = [config.kappa if c.kappa is None else c.kappa for c in config.classes]
        kappa = np.array(own)[of]
    else:
        span = config.frequency_max_hz - config.frequency_min_hz
        frequency = config.frequency_min_hz + span * generator.random(devices)
        flops_per_s = config.flops_per_cycle * frequency
    return Speeds(flops_per_s, flops_per_s / config.flops_per_cycle, kappa)


def _classes(
    config: ClassesComputeConfig, devices: int, generator: np.random.Generator
) -> np.ndarray:
    """[K] int64: each device's class."""
    shares = np.array([c.share for c in config.classes])
    shares = shares / shares.sum()
    if config.assignment == "random":
        of = np.searchsorted(np.cumsum(shares), generator.random(devices), side="right")
        return np.minimum(of, len(shares) - 1)  # round-off may leave the sum below 1
    of = np.empty(devices, dtype=np.int64)
    dealt = np.zeros(len(shares))
    for device in range(devices):
        behind = (device + 1) * shares - dealt
        of[device] = np.argmax(behind)
        dealt[of[device]] += 1
    return of


class Interval(NamedTuple):
    """What a device did: "receive", "compute", "abandon" (computed, then dropped) or "transmit".
    `round` is the one in which its update was started."""

    device: int
    round: int
    activity: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Slot:
    """An uplink slot of one trial. Devices in ascending order.

    opened_s: when. on_time: [n] int64, the devices that transmit. started_round: [n] int64, the
    round in which each started its update. late: [l] int64, the others that were at work.
    late_done: [l] in [0, 1], the share of its operations that each had done.
    """

    opened_s: float
    on_time: np.ndarray
    started_round: np.ndarray
    late: np.ndarray
    late_done: np.ndarray


class _Update:
    """One device's work between a broadcast and its slot."""

    __slots__ = ("abandoned", "began_s", "compute_s", "device", "ready", "round", "sent_s")

    def __init__(
        self, device: int, round: int, sent_s: float, began_s: float, compute_s: float
    ) -> None:
        self.device = device
        self.round = round
        self.sent_s = sent_s  # start of the broadcast
        self.began_s = began_s  # its end
        self.compute_s = compute_s
        self.ready = False
        self.abandoned = False

    def done(self, now_s: float) -> float:
        """Share of the operations done, in [0, 1]."""
        return max(0.0, now_s - self.began_s) / self.compute_s if self.compute_s else 0.0


class TrialClock:
    """The clock of one trial: `start`, `admit`, `transmit` for each round, in that order.

    flops_per_s: [K]. late: what becomes of a device that misses the slot. log: keep `intervals`.
    """

    def __init__(self, flops_per_s: np.ndarray, late: Late = "drop", log: bool = False) -> None:
        self.env = simpy.Environment()
        self.stopped = False
        self.intervals: list[Interval] | None = [] if log else None
        self._flops_per_s = np.asarray(flops_per_s, dtype=np.float64)
        self._late = late
        self._busy: dict[int, _Update] = {}
        self._sending: list[_Update] = []
        self._broadcast: simpy.Event | None = None
        self._all_ready: simpy.Event | None = None
        self._waiting = 0
        self._last_flops = math.nan
        self._last_compute_s = np.empty(0)

    def now(self) -> float:
        """Simulated seconds since the start."""
        return float(self.env.now)

    def available(self) -> np.ndarray:
        """[K] bool: devices not busy with an earlier update; none once the trial has stopped."""
        free = np.full(len(self._flops_per_s), not self.stopped)
        free[list(self._busy)] = False
        return free

    def start(
        self, round: int, devices: np.ndarray, flops: np.ndarray | float, downlink_s: float
    ) -> None:
        """Broadcasts for `downlink_s` to devices [n], each of which then computes its flops, [n] or
        one number for all."""
        if self._broadcast is not None:
            raise RuntimeError("start before the last round's slot was admitted")
        _check_seconds("downlink_s", downlink_s)
        compute_s = self._compute_s(devices, flops)
        env, busy, timeout = self.env, self._busy, self.env.timeout
        began_s = env.now + downlink_s
        self._broadcast = timeout(downlink_s)
        for device, seconds in zip(devices.tolist(), compute_s, strict=True):
            if device in busy:
                raise ValueError(f"device {device} is busy with an earlier update")
            busy[device] = update = _Update(device, round, env.now, began_s, seconds)
            timeout(downlink_s + seconds, update).callbacks.append(self._computed)
        self._waiting += len(devices)

    def _compute_s(self, devices: np.ndarray, flops: np.ndarray | float) -> list[float]:
        """Seconds of computing; those of the last number for all are kept."""
        if isinstance(flops, float) and flops == self._last_flops:
            every = self._last_compute_s
        else:
            rates = self._flops_per_s if np.ndim(flops) == 0 else self._flops_per_s[devices]
            every = flops / rates
            if not (np.isfinite(every).all() and (every >= 0).all()):
                raise ValueError(f"flops must be finite and not negative, got {flops}")
            if isinstance(flops, float):
                self._last_flops, self._last_compute_s = flops, every
        return (every[devices] if np.ndim(flops) == 0 else every).tolist()

    def admit(self, deadline_s: float | None = None) -> Slot:
        """Advances to the slot's opening: when all devices at work are ready and the broadcast is
        over, or `deadline_s` after the broadcast's start. Being ready at the deadline is on time.
        None or inf waits for all."""
        if self._broadcast is None:
            raise RuntimeError("admit before start")
        env = self.env
        opening = self._broadcast
        if self._waiting:
            self._all_ready = env.event()
            opening = opening & self._all_ready
        if deadline_s is not None and deadline_s != math.inf:
            _check_seconds("deadline_s", deadline_s)
            opening = opening | env.timeout(deadline_s)
        # Devices ready at this very instant come before it: their timeouts are queued earlier.
        env.run(until=opening)
        self._broadcast = self._all_ready = None
        return self._open()

    def transmit(self, airtime_s: float) -> None:
        """The uplink slot: advances by `airtime_s`; those admitted are then available again."""
        if self._broadcast is not None:
            raise RuntimeError("transmit before admit")
        _check_seconds("airtime_s", airtime_s)
        env = self.env
        opened_s = env.now
        if airtime_s:
            env.run(until=opened_s + airtime_s)
        for update in self._sending:
            del self._busy[update.device]
            self._record(update, "transmit", opened_s, env.now)
        self._sending = []

    def stop(self) -> None:
        """Ends the trial: its time stands still, none of its devices is available."""
        self.stopped = True

    def _computed(self, done: simpy.Event) -> None:
        """A device's timeout has passed: its update is ready, unless it was abandoned."""
        update = cast(_Update, done.value)
        if update.abandoned:
            return
        update.ready = True
        self._waiting -= 1
        if not self._waiting and self._all_ready is not None:
            self._all_ready.succeed()

    def _open(self) -> Slot:
        """Parts those at work into on time and late."""
        now_s = self.env.now
        updates = [self._busy[device] for device in sorted(self._busy)]
        self._sending = [update for update in updates if update.ready]
        late = [update for update in updates if not update.ready]
        slot = Slot(
            now_s,
            np.array([update.device for update in self._sending], dtype=np.int64),
            np.array([update.round for update in self._sending], dtype=np.int64),
            np.array([update.device for update in late], dtype=np.int64),
            np.array([update.done(now_s) for update in late], dtype=np.float64),
        )
        for update in self._sending:
            self._record(update, "receive", update.sent_s, update.began_s)
            self._record(update, "compute", update.began_s, update.began_s + update.compute_s)
        if self._late == "drop":
            for update in late:
                self._abandon(update)
            self._waiting = 0
        return slot

    def _abandon(self, update: _Update) -> None:
        """The device drops what it has and is available again."""
        now_s = self.env.now
        update.abandoned = True
        del self._busy[update.device]
        if update.began_s <= now_s:
            self._record(update, "receive", update.sent_s, update.began_s)
        self._record(update, "abandon", min(update.began_s, now_s), now_s)

    def _record(self, update: _Update, activity: str, start_s: float, end_s: float) -> None:
        if self.intervals is not None:
            interval = Interval(update.device, update.round, activity, start_s, end_s)
            self.intervals.append(interval)


def _check_seconds(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be finite and not negative, got {value}")


class Clock:
    """The clocks of S independent trials. `begin`, `open_slot`, `close_slot` make a round; trials
    that stopped are passed over.

    flops_per_s: [S, K].
    """

    def __init__(self, flops_per_s: np.ndarray, late: Late = "drop", log: bool = False) -> None:
        self.trials = [TrialClock(row, late, log) for row in flops_per_s]

    def available(self) -> np.ndarray:
        """[S, K] bool: devices not busy with an earlier update."""
        return np.stack([trial.available() for trial in self.trials])

    def begin(
        self,
        round: int,
        participants: Sequence[np.ndarray],
        flops: np.ndarray | float,
        downlink_s: np.ndarray | float = 0.0,
    ) -> None:
        """participants: S arrays of available devices. flops: [N], or one number for all, in the
        order of the participants, trial by trial. downlink_s: [S] or one number."""
        parts: Sequence[np.ndarray | float]
        if np.ndim(flops):
            ends = np.cumsum([len(devices) for devices in participants])
            parts = np.split(np.asarray(flops), ends[:-1])
        else:
            parts = [float(flops)] * len(self.trials)
        seconds = self._each(downlink_s)
        for trial, devices, part, down in zip(
            self.trials, participants, parts, seconds, strict=True
        ):
            if not trial.stopped:
                trial.start(round, np.asarray(devices, dtype=np.int64), part, down)

    def open_slot(self, deadline_s: np.ndarray | float | None = None) -> list[Slot]:
        """S slots, a stopped trial's empty. deadline_s: [S] or one number, seconds after the
        broadcast's start; inf or None waits for all."""
        seconds = self._each(math.inf if deadline_s is None else deadline_s)
        return [
            _empty_slot(trial.now()) if trial.stopped else trial.admit(deadline)
            for trial, deadline in zip(self.trials, seconds, strict=True)
        ]

    def close_slot(self, airtime_s: np.ndarray | float) -> None:
        """Ends the round. airtime_s: [S] or one number."""
        for trial, seconds in zip(self.trials, self._each(airtime_s), strict=True):
            if not trial.stopped:
                trial.transmit(seconds)

    def now(self) -> np.ndarray:
        """[S] simulated seconds."""
        return np.array([trial.now() for trial in self.trials])

    def stop(self, trial: int) -> None:
        """Ends a trial for good, the others go on."""
        self.trials[trial].stop()

    def _each(self, value: np.ndarray | float) -> list[float]:
        """[S] of one number or of [S]."""
        return np.broadcast_to(np.asarray(value, dtype=float), (len(self.trials),)).tolist()


def _empty_slot(now_s: float) -> Slot:
    none = np.empty(0, dtype=np.int64)
    return Slot(now_s, none, none, none, np.empty(0))
