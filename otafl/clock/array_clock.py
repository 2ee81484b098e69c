"""Clocks of stacks whose rounds are all plain, with arrays.

In a plain round every participant stays until its update is sent, and the slot opens when all
updates are ready. All instants are then sums and maxima of durations that are known at the start of
the round. All other rounds are simulated by `otafl.clock.event_clock`, which agrees up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from otafl.clock.base import Clock
from otafl.clock.power import CIRCUIT, COMPUTE, IDLE, RECEIVE, TRANSMIT
from otafl.devices.availability import Life
from otafl.devices.hardware import CAUSES, Hardware
from otafl.devices.protocols import Rules


def are_plain(
    hardware: Hardware, rules: Sequence[Rules], lives: Sequence[Sequence[Life | None]]
) -> bool:
    """Return whether all rounds of a stack are plain.

    Slots then open when all updates are ready, with no deadline. No device leaves, and none has a
    battery, because it can leave or be empty at any instant of a round.

    Parameters
    ----------
    hardware : Hardware, arrays [S, K]
        Hardware of the devices.
    rules : Sequence of Rules
        Rules of the protocol, one for each trial.
    lives : Sequence
        Lives of the devices for each trial; empty if no device leaves.

    Returns
    -------
    bool
        Whether `ArrayClock` gives the times and energies of the stack.
    """
    waits_for_all = all(replace(one, late="drop") == Rules() for one in rules)
    return waits_for_all and hardware.is_on_mains and not any(map(len, lives))


class ArrayClock(Clock):
    """Simulated time and energy of S trials in plain rounds.

    A round takes effect at the end of its slot. Until then times and energies are those before it.

    Parameters
    ----------
    hardware : Hardware, arrays [S, K]
        Hardware of the devices.
    """

    state_attrs: ClassVar = ("_now_s", "_started", "_running", "_spent", "_asleep_s")

    def __init__(self, hardware: Hardware) -> None:
        self._trials, self._devices = hardware.flops_per_s.shape
        watts = {
            CIRCUIT: hardware.circuit_w,
            RECEIVE: hardware.receive_w,
            IDLE: hardware.idle_w,
        }
        self._watts = {cause: each for cause, each in watts.items() if each.any()}
        self._sleep_w, self._sleeps = hardware.sleep_w, bool(hardware.sleep_w.any())
        self._now_s = np.zeros(self._trials)
        self._started = np.zeros(self._trials, np.int64)
        self._running = np.ones(self._trials, bool)
        # the operating system allocates the pages of these arrays when they are first written
        self._spent = np.zeros((len(CAUSES), self._trials, self._devices))
        self._asleep_s = np.zeros((self._trials, self._devices))
        self._has_begun = False
        self._opened_s: np.ndarray | None = None

    def wait_for_devices(self) -> list[int]:
        return []

    def get_available(self) -> np.ndarray:
        return ~self._mark_participants() & self._running[:, None]

    def are_all_available(self) -> bool:
        return not self._has_begun and bool(self._running.all())

    def count_present(self) -> np.ndarray:
        return np.full(self._trials, float(self._devices))

    def get_busy(self) -> np.ndarray:
        return self._mark_participants() & (self._opened_s is None)

    def _mark_participants(self) -> np.ndarray:
        """Return the mask [S, K] of the participants of a round that has not ended."""
        mask = np.zeros(self._trials * self._devices, bool)
        if self._has_begun:
            mask[self._cell] = True
        return mask.reshape(self._trials, self._devices)

    def begin(
        self,
        round: int,
        participants: np.ndarray,
        downlink_s: np.ndarray,
        compute_s: np.ndarray,
        compute_w: np.ndarray,
        broadcast_s: np.ndarray,
    ) -> None:
        cell, trial, down_s = participants, participants // self._devices, downlink_s
        _check_durations(down_s + compute_s, "seconds")
        if not self._running.all():
            keep = self._running[trial]
            rows = (one[keep] for one in (trial, cell, down_s, compute_s, compute_w))
            trial, cell, down_s, compute_s, compute_w = rows
        sent_s = self._now_s[trial]
        ready_s = sent_s + (down_s + compute_s)
        received_s = self._now_s + broadcast_s
        latest_s = np.maximum(self._now_s, received_s)
        np.maximum.at(latest_s, trial, ready_s)
        self._latest_s = np.where(self._running, latest_s, self._now_s)
        self._trial, self._cell = trial, cell
        self._sent_s, self._began_s, self._ready_s = sent_s, sent_s + down_s, ready_s
        self._compute_w, self._has_begun = compute_w, True

    def admit(self) -> np.ndarray:
        self._opened_s = self._meet(self._latest_s, self.together)
        return self._mark_participants()

    def close_slot(self, airtime_s: np.ndarray, joules: np.ndarray, on_air_s: np.ndarray) -> None:
        assert self._opened_s is not None
        _check_durations(airtime_s[self._running], "airtime_s")
        trial, cell = self._trial, self._cell
        lasts_s = np.minimum(on_air_s.reshape(-1)[cell], airtime_s[trial])
        opened_s = self._opened_s[trial]
        stop_s = opened_s + lasts_s
        # the totals' sums are in the same order of operations as those of `Power`
        at, spent = (trial, cell % self._devices), self._spent.reshape(len(CAUSES), -1)
        if self._sleeps:
            asleep = self._asleep_s.reshape(-1)
            spent[IDLE, cell] += self._sleep_w[at] * np.maximum(0.0, self._sent_s - asleep[cell])
            asleep[cell] = stop_s
        spans = {
            RECEIVE: (self._sent_s, self._began_s),
            IDLE: (self._ready_s, opened_s),
            CIRCUIT: (opened_s, stop_s),
        }
        for cause, watts in self._watts.items():
            since_s, until_s = spans[cause]
            spent[cause, cell] += watts[at] * (until_s - since_s)
        spent[COMPUTE, cell] += self._compute_w * (self._ready_s - self._began_s)
        spent[TRANSMIT, cell] += np.where(stop_s > opened_s, joules.reshape(-1)[cell], 0.0)
        self._now_s = np.where(self._running, self._opened_s + airtime_s, self._now_s)
        self._started += np.bincount(trial, minlength=self._trials)
        self._has_begun, self._opened_s = False, None

    def synchronise(self, trials: int, seconds: Sequence[float]) -> None:
        met_s = self._meet(self._now_s, trials)
        self._now_s = np.where(self._running, np.maximum(met_s, met_s + np.asarray(seconds)), met_s)

    def _meet(self, now_s: np.ndarray, trials: int) -> np.ndarray:
        """Return the latest instant [S] of each group of consecutive running trials."""
        if trials == 1:
            return now_s
        last_s = np.repeat(np.maximum.reduceat(now_s, np.arange(0, self._trials, trials)), trials)
        met_s: np.ndarray = np.where(self._running, last_s[: self._trials], now_s)
        return met_s

    def get_time_s(self) -> np.ndarray:
        return self._now_s.copy()

    def compute_spent_j(self) -> np.ndarray:
        spent = np.ascontiguousarray(np.moveaxis(self._spent, 0, -1))
        if self._sleeps:
            spent[..., IDLE] += self._sleep_w * (self._now_s[:, None] - self._asleep_s)
        return spent

    def compute_charge_j(self) -> np.ndarray:
        return np.full((self._trials, self._devices), np.inf)

    def count_updates(self) -> tuple[np.ndarray, np.ndarray]:
        return self._started.astype(float), np.zeros(self._trials)

    def stop(self, trial: int) -> None:
        self._running[trial] = False


def _check_durations(seconds: np.ndarray, name: str) -> None:
    """Raise ValueError if a duration is negative or not finite."""
    wrong = ~((seconds >= 0) & (seconds < math.inf))
    if wrong.any():
        raise ValueError(f"{name} must be finite and not negative, got {seconds[wrong][0]}")
