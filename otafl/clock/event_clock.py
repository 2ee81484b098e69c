"""Clocks of a stack of trials that SimPy simulates.

`otafl.clock.trial_clock` simulates one trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from otafl.clock.base import Clock
from otafl.clock.local_work import WorkSlot
from otafl.clock.trial_clock import TrialClock
from otafl.devices.availability import Life
from otafl.devices.hardware import ACTIVITIES, Hardware
from otafl.devices.protocols import Rules

_JOURNALLED = (
    *("wait_for_devices", "begin", "open_slot", "transmit", "compute_charge_j", "stop"),
    "synchronise",
)
"""Methods whose calls a journal has."""


class EventClock(Clock):
    """Clocks of S independent trials, each with a SimPy environment.

    Parameters
    ----------
    hardware : Hardware, arrays [S, K]
        Hardware of the devices.
    rules : Sequence of Rules
        Rules of the protocol, one for each trial.
    lives : Sequence
        Lives of the K devices for each trial; empty if no device leaves.
    log : bool
        Whether to record a timeline.

    Attributes
    ----------
    trials : list of TrialClock
        The clock of each trial.
    """

    def __init__(
        self,
        hardware: Hardware,
        rules: Sequence[Rules],
        lives: Sequence[Sequence[Life | None]],
        log: bool = False,
    ) -> None:
        self._num_trials, self._devices = hardware.flops_per_s.shape
        self.trials = [
            TrialClock(hardware.select_rows(trial), rules[trial], lives[trial], log)
            for trial in range(self._num_trials)
        ]

    def wait_for_devices(self) -> list[int]:
        self._record_call("wait_for_devices")
        ended = []
        for first in range(0, self._num_trials, self.together):
            numbers = range(first, first + self.together)
            running = [number for number in numbers if not self.trials[number].stopped]
            if not TrialClock.wait_for_any([self.trials[number] for number in running]):
                ended += running
        return ended

    def get_available(self) -> np.ndarray:
        return np.stack([trial.get_available() for trial in self.trials])

    def are_all_available(self) -> bool:
        return all(trial.are_all_available() for trial in self.trials)

    def count_present(self) -> np.ndarray:
        return np.array([trial.count_present() for trial in self.trials])

    def get_busy(self) -> np.ndarray:
        busy = np.zeros((self._num_trials, self._devices), bool)
        for row, trial in zip(busy, self.trials, strict=True):
            row[trial.get_busy()] = True
        return busy

    def begin(
        self,
        round: int,
        participants: np.ndarray,
        downlink_s: np.ndarray,
        compute_s: np.ndarray,
        compute_w: np.ndarray,
        broadcast_s: np.ndarray,
    ) -> None:
        self._record_call(
            "begin", round, participants, downlink_s, compute_s, compute_w, broadcast_s
        )
        rows = participants % self._devices, downlink_s, compute_s, compute_w
        columns, first = [column.tolist() for column in rows], 0
        ends = self._devices * np.arange(1, self._num_trials + 1)
        stops = np.searchsorted(participants, ends).tolist()
        for trial, stop, longest in zip(self.trials, stops, broadcast_s.tolist(), strict=True):
            if not trial.stopped:
                devices, down, seconds, watts = (column[first:stop] for column in columns)
                trial.start(round, devices, down, seconds, watts, longest)
            first = stop

    def admit(self) -> np.ndarray:
        admitted = np.zeros((self._num_trials, self._devices), bool)
        for row, slot in zip(admitted, self.open_slot(), strict=True):
            row[slot.on_time] = True
        return admitted

    def open_slot(self) -> list[WorkSlot]:
        """Advance to the slots and return S of them; the slot of a stopped trial is empty."""
        self._record_call("open_slot")
        for trial in self.trials:
            if not trial.stopped:
                trial.reach_slot()
        self._meet(self.together)
        return [
            WorkSlot(trial.get_time_s(), [], []) if trial.stopped else trial.open()
            for trial in self.trials
        ]

    def synchronise(self, trials: int, seconds: Sequence[float]) -> None:
        self._record_call("synchronise", trials, seconds)
        self._meet(trials)
        for trial, own in zip(self.trials, seconds, strict=True):
            if not trial.stopped:
                trial.wait_until(trial.get_time_s() + own)

    def _meet(self, trials: int) -> None:
        """Advance groups of consecutive trials to the latest time of each group."""
        for first in range(0, self._num_trials, trials):
            group = self.trials[first : first + trials]
            last_s = max(trial.get_time_s() for trial in group)
            for trial in group:
                if not trial.stopped:
                    trial.wait_until(last_s)

    def close_slot(self, airtime_s: np.ndarray, joules: np.ndarray, on_air_s: np.ndarray) -> None:
        senders = [trial.list_transmitters() for trial in self.trials]
        self.transmit(
            airtime_s.tolist(), *(_select_devices(one, senders) for one in (joules, on_air_s))
        )

    def transmit(self, *columns: Sequence[Any]) -> None:
        """End the round with S values of each argument of `TrialClock.transmit`."""
        self._record_call("transmit", *columns)
        for trial, *own in zip(self.trials, *columns, strict=True):
            if not trial.stopped:
                trial.transmit(*own)

    def get_time_s(self) -> np.ndarray:
        return np.array([trial.get_time_s() for trial in self.trials])

    def compute_spent_j(self) -> np.ndarray:
        return np.stack([trial.compute_spent_j() for trial in self.trials])

    def compute_charge_j(self) -> np.ndarray:
        self._record_call("compute_charge_j")  # changes the rounding of the batteries' sums
        return np.stack([trial.power.compute_charge_j() for trial in self.trials])

    def count_updates(self) -> tuple[np.ndarray, np.ndarray]:
        started = [float(trial.started) for trial in self.trials]
        return np.array(started), np.array([float(trial.lost) for trial in self.trials])

    def build_timeline(self) -> dict[str, np.ndarray] | None:
        if self.trials[0].intervals is None:
            return None
        by_start = attrgetter("start_s", "device")
        logs = [sorted(trial.history(), key=by_start) for trial in self.trials]
        table = np.full((5, len(logs), max(map(len, logs))), np.nan)
        for trial, log in enumerate(logs):
            for place, (device, round, activity, start_s, end_s) in enumerate(log):
                kind = ACTIVITIES.index(activity)
                table[:, trial, place] = device, round, kind, start_s, end_s
        return dict(zip(("device", "round", "activity", "start_s", "end_s"), table, strict=True))

    def stop(self, trial: int) -> None:
        self._record_call("stop", trial)
        self.trials[trial].stop()

    def state_dict(self) -> dict[str, Any]:
        """Return the journal, since the events of SimPy cannot be saved."""
        return {"journal": self.journal}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Repeat the calls of a journal. This clock must be new, and continues the journal."""
        self.journal = []
        for method, *given in state["journal"]:
            if method not in _JOURNALLED:
                raise ValueError(
                    f"journal: got {method!r}; must be one of {', '.join(_JOURNALLED)}"
                )
            getattr(self, method)(*given)

    def _record_call(self, method: str, *given: Any) -> None:
        """Add a call to the journal, if there is one."""
        if self.journal is not None:
            self.journal.append((method, *given))


def _select_devices(values: np.ndarray, devices: Sequence[list[int]]) -> list[dict[int, Any]]:
    """Return the values [S, K] of some devices of each trial, by device."""
    return [
        dict(zip(some, row[some].tolist(), strict=True))
        for row, some in zip(values, devices, strict=True)
    ]
