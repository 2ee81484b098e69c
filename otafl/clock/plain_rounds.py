"""Plain rounds of a stack, computed with arrays and equal to SimPy's up to rounding.

In a plain round, every participant stays until its update is sent. All instants are then sums and
maxima of durations that are known at the start of the round. Every other round is left to
`otafl.clock.trial_clock`, which takes over at the end of the last complete round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from otafl.clock.local_work import Slot
from otafl.clock.power import CIRCUIT, COMPUTE, IDLE, RECEIVE, TRANSMIT
from otafl.clock.trial_clock import TrialClock
from otafl.devices.activities import CAUSES
from otafl.devices.availability import Life
from otafl.devices.hardware import Hardware
from otafl.devices.protocols import Rules

MIN_DEVICES = 12
"""Number of devices over all trials below which SimPy is as fast as arrays."""


def can_be_plain(
    hardware: Hardware, rules: Sequence[Rules], lives: Sequence[Sequence[Life | None]], log: bool
) -> bool:
    """Return whether the rounds of a stack are plain until a device is late or crashes.

    Five conditions must hold:

    - Slots open when all updates are ready. Other slots leave devices at work from round to round.
      A deadline matters only once a device misses it.
    - No device leaves, because it can leave at any instant of a round.
    - No device has a battery, because a battery can be empty at any instant.
    - No timeline is recorded. It is a list of objects for each device, which arrays do not make
      shorter.
    - There are at least `MIN_DEVICES` devices.

    Parameters
    ----------
    hardware : Hardware, arrays [S, K]
        Hardware of the devices.
    rules : Sequence of Rules
        Rules of the protocol, one for each trial.
    lives : Sequence
        Lives of the devices for each trial; empty if no device leaves.
    log : bool
        Whether to record a timeline.

    Returns
    -------
    bool
        Whether `PlainRounds` can be used.
    """
    if hardware.flops_per_s.size < MIN_DEVICES:
        return False
    waits_for_all = all(replace(one, deadline_s=math.inf, late="drop") == Rules() for one in rules)
    return waits_for_all and hardware.is_on_mains and not any(map(len, lives)) and not log


class RoundStart(NamedTuple):
    """Start of a round, as a clock gets it.

    Parameters
    ----------
    round : int
        Number of the round.
    participants : Sequence of ndarray, int64
        Available devices that take part, an array for each of the S trials.
    downlink_s : ndarray, [N], or float
        Seconds until each participant has the model, trial by trial, or one number for all.
    compute_s, compute_w : ndarray, [N]
        Duration and power of the local work, in the same order.
    broadcast_s : ndarray, [S], or float, optional
        Seconds of the broadcast, or one number for all; None stands for the longest downlink_s.
    """

    round: int
    participants: Sequence[np.ndarray]
    downlink_s: np.ndarray | float
    compute_s: np.ndarray
    compute_w: np.ndarray
    broadcast_s: np.ndarray | float | None

    def expand_columns(self) -> list[np.ndarray]:
        """Return downlink_s, compute_s and compute_w as arrays [N]."""
        columns = self.downlink_s, self.compute_s, self.compute_w
        return [_broadcast(column, len(self.compute_s)) for column in columns]


class PlainRounds:
    """Simulated time and energy of S trials in plain rounds.

    A round takes effect at the end of its slot. Until then the state is that before the round, with
    the start of the round in `start`. SimPy can therefore repeat a round that turns out not to be
    plain.

    Parameters
    ----------
    hardware : Hardware, arrays [S, K]
        Hardware of the devices.
    rules : Sequence of Rules
        Rules of the protocol, one for each trial.

    Attributes
    ----------
    now_s : ndarray, float64 [S]
        Simulated time.
    started : ndarray, int64 [S]
        Number of updates that were started.
    running : ndarray, bool [S]
        Whether each trial has not stopped.
    start : RoundStart, optional
        Start of the round whose slots have not ended.
    opened_s : ndarray, float64 [S], optional
        Times at which its slots opened, None before.
    """

    def __init__(self, hardware: Hardware, rules: Sequence[Rules]) -> None:
        self._trials, self._devices = hardware.flops_per_s.shape
        self._deadline_s = np.array([one.deadline_s for one in rules])
        self._watts = {
            CIRCUIT: hardware.circuit_w,
            RECEIVE: hardware.receive_w,
            IDLE: hardware.idle_w,
        }
        self._sleep_w = hardware.sleep_w
        watts = (*self._watts.values(), self._sleep_w)
        # trials whose devices draw power only to compute and to radiate, as in `Power.plain`
        self._is_frugal: np.ndarray = ~np.any([one.any(1) for one in watts], axis=0)
        self.now_s = np.zeros(self._trials)
        self.started = np.zeros(self._trials, np.int64)
        self.running = np.ones(self._trials, bool)
        # the operating system allocates the pages of these arrays when they are first written
        self._spent = np.zeros((len(CAUSES), self._trials, self._devices))
        self._asleep_s = np.zeros((self._trials, self._devices))
        self.start: RoundStart | None = None
        self.opened_s: np.ndarray | None = None

    @property
    def is_between(self) -> bool:
        """Whether every round that has begun has ended."""
        return self.start is None

    def begin(self, start: RoundStart) -> bool:
        """Begin a round as `Clock.begin` does. Return False if the round is not plain."""
        if not self.is_between:
            return False
        counts = np.fromiter(map(len, start.participants), np.int64, self._trials)
        trial = np.repeat(np.arange(self._trials), counts)
        cell = trial * self._devices + np.concatenate(start.participants)
        columns = start.expand_columns()
        if not self.running.all():
            keep = self.running[trial]
            trial, cell, *columns = (one[keep] for one in (trial, cell, *columns))
            counts = np.where(self.running, counts, 0)
        down_s, own_s, watts = columns
        delay_s = down_s + own_s
        broadcast_s = start.broadcast_s
        if broadcast_s is None:
            broadcast_s = _find_largest(down_s, counts, np.zeros(self._trials))
        lasts_s = _broadcast(broadcast_s, self._trials)
        if not (_are_durations(down_s) and _are_durations(delay_s) and _are_durations(lasts_s)):
            return False  # the clock with SimPy raises the error
        if not (cell[1:] > cell[:-1]).all():
            return False
        sent_s = self.now_s[trial]
        ready_s = sent_s + delay_s
        latest_s = _find_largest(ready_s, counts, np.maximum(self.now_s, self.now_s + lasts_s))
        latest_s = np.where(self.running, latest_s, self.now_s)
        bound_s = self.now_s + np.maximum(0.0, (self.now_s + self._deadline_s) - self.now_s)
        if (latest_s > bound_s).any():
            return False
        self.start = start._replace(broadcast_s=broadcast_s)
        self._counts, self._trial, self._cell = counts, trial, cell
        self._sent_s, self._began_s, self._ready_s = sent_s, sent_s + down_s, ready_s
        self._compute_w, self._latest_s = watts, latest_s
        return True

    def open_slot(self, together: int) -> bool:
        """Advance to the slots as `Clock.open_slot` does.

        Return False if the round is not plain.
        """
        if self.start is None or self.opened_s is not None:
            return False
        self.opened_s = self._meet(self._latest_s, together)
        return True

    def get_admitted(self) -> np.ndarray:
        """Return the mask [S, K] of the devices in the open slots."""
        mask = np.zeros(self._trials * self._devices, bool)
        mask[self._cell] = True
        return mask.reshape(self._trials, self._devices)

    def list_slots(self) -> list[Slot]:
        """Return the S open slots."""
        assert self.start is not None
        assert self.opened_s is not None
        bounds = np.cumsum(self._counts)[:-1]
        devices = [one.tolist() for one in np.split(self._cell % self._devices, bounds)]
        return [
            Slot(opened_s, own, [self.start.round] * len(own))
            for opened_s, own in zip(self.opened_s.tolist(), devices, strict=True)
        ]

    def list_transmitters(self) -> list[list[int]]:
        """Return the devices of the open slots, in ascending order, a list for each trial."""
        return [slot.on_time for slot in self.list_slots()]

    def close_slot(
        self,
        airtime_s: np.ndarray | float,
        joules: np.ndarray | None,
        on_air_s: np.ndarray | None,
        crashed: np.ndarray | None,
        downtime_s: np.ndarray | float,
    ) -> bool:
        """End the round as `Clock.close_slot` does. Return False if the round is not plain."""
        if self.opened_s is None:
            return False
        airtime_s = _broadcast(airtime_s, self._trials)
        trial, cell = self._trial, self._cell
        if not _are_durations(airtime_s[self.running]):
            return False
        if crashed is not None and np.any(downtime_s) and crashed.reshape(-1)[cell].any():
            return False
        lasts_s = airtime_s[trial]
        if on_air_s is not None:
            own_s = on_air_s.reshape(-1)[cell]
            lasts_s = np.where(own_s < lasts_s, own_s, lasts_s)
        opened_s = self.opened_s[trial]
        stop_s = opened_s + lasts_s
        self._charge(opened_s, stop_s, None if joules is None else joules.reshape(-1)[cell])
        self.now_s = np.where(self.running, self.opened_s + airtime_s, self.now_s)
        self.started += self._counts
        self.start = self.opened_s = None
        return True

    def _charge(self, opened_s: np.ndarray, stop_s: np.ndarray, joules: np.ndarray | None) -> None:
        """Add the energy of the round to the totals, in the same order of operations as `Power`."""
        cell, spent = self._cell, self._spent.reshape(len(CAUSES), -1)
        frugal = bool(self._is_frugal.all())
        if not frugal:
            at = self._trial, cell % self._devices
            asleep = self._asleep_s.reshape(-1)
            slept_s = self._sent_s - asleep[cell]
            spent[IDLE, cell] += np.where(slept_s > 0, self._sleep_w[at] * slept_s, 0.0)
            seconds = {
                RECEIVE: self._began_s - self._sent_s,
                IDLE: opened_s - self._ready_s,
                CIRCUIT: stop_s - opened_s,
            }
            for cause, lasts_s in seconds.items():
                spent[cause, cell] += self._watts[cause][at] * lasts_s
            asleep[cell] = np.where(self._is_frugal[self._trial], asleep[cell], stop_s)
        spent[COMPUTE, cell] += self._compute_w * (self._ready_s - self._began_s)
        if joules is not None:
            if not frugal:
                radiates = self._is_frugal[self._trial] | (stop_s > opened_s)
                joules = np.where(radiates, joules, 0.0)
            spent[TRANSMIT, cell] += joules

    def synchronise(self, trials: int, seconds: Sequence[float]) -> None:
        """Synchronise groups of trials as `Clock.synchronise` does."""
        met_s = self._meet(self.now_s, trials)
        self.now_s = np.where(self.running, np.maximum(met_s, met_s + np.asarray(seconds)), met_s)

    def _meet(self, now_s: np.ndarray, trials: int) -> np.ndarray:
        """Return the latest instant [S] of each group of consecutive running trials."""
        if trials == 1:
            return now_s
        last_s = np.repeat(np.maximum.reduceat(now_s, np.arange(0, self._trials, trials)), trials)
        met_s: np.ndarray = np.where(self.running, last_s[: self._trials], now_s)
        return met_s

    def compute_spent_j(self) -> np.ndarray:
        """Compute the energy so far in joules, [S, K, causes], including sleep until now."""
        spent = np.ascontiguousarray(np.moveaxis(self._spent, 0, -1))
        if not self._is_frugal.all():
            asleep_s = self.now_s[:, None] - self._asleep_s
            spent[..., IDLE] += np.where(self._is_frugal[:, None], 0.0, self._sleep_w * asleep_s)
        return spent

    def hand_over(self, trials: Sequence[TrialClock]) -> None:
        """Set new clocks to the end of the last complete round of the trials."""
        columns = self.now_s.tolist(), self.started.tolist(), self.running.tolist()
        for number, (now_s, started, running) in enumerate(zip(*columns, strict=True)):
            trial = trials[number]
            trial.take_over(now_s, started, self._spent[:, number], self._asleep_s[number])
            if not running:
                trial.stop()


def _find_largest(values: np.ndarray, counts: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Return the maximum [S] of `least` [S] and of each trial's values.

    The values [N] are ordered by trial, and `counts` [S] are their numbers.
    """
    some = np.flatnonzero(counts)
    if not len(some):
        return least
    out = least.copy()
    starts = (np.cumsum(counts) - counts)[some]
    out[some] = np.maximum(out[some], np.maximum.reduceat(values, starts))
    return out


def _broadcast(values: np.ndarray | float, size: int) -> np.ndarray:
    """Return values as an array of this length, without a call of NumPy where they are one."""
    if isinstance(values, np.ndarray) and values.shape == (size,) and values.dtype == float:
        return values
    return np.broadcast_to(np.asarray(values, dtype=float), size)


def _are_durations(seconds: np.ndarray) -> bool:
    """Return whether all seconds are finite and not negative."""
    return bool(((seconds >= 0) & (seconds < math.inf)).all())
