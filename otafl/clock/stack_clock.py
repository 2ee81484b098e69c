"""Clocks of a stack: simulated time, energy and batteries of S independent trials.

`otafl.clock.trial_clock` simulates one trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, cast

import numpy as np

from otafl.clock.local_work import Slot
from otafl.clock.plain_rounds import PlainRounds, RoundStart, can_be_plain
from otafl.clock.trial_clock import TrialClock
from otafl.devices.activities import ACTIVITIES, CAUSES
from otafl.devices.availability import Life
from otafl.devices.hardware import Hardware
from otafl.devices.protocols import Rules

_JOURNAL_METHODS = {
    **{name: name for name in ("wait_for_devices", "begin", "open_slot", "transmit")},
    "charge_j": "compute_charge_j",
    "stop": "stop",
    "meet": "synchronise",
}
"""Word in a journal -> the method that it stands for."""


class Clock:
    """Clocks of S independent trials.

    `begin`, `open_slot` and `close_slot` make a round. Stopped trials are skipped. Plain rounds are
    computed with arrays, see `otafl.clock.plain_rounds`.

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
    journal : list, optional
        Calls of the methods and their arguments, if set to a list; see `replay`.
    """

    journal: list[tuple[Any, ...]] | None = None

    together: int = 1
    """Number of consecutive trials that open their slots together, when the last one is ready."""

    def __init__(
        self,
        hardware: Hardware,
        rules: Sequence[Rules],
        lives: Sequence[Sequence[Life | None]],
        log: bool = False,
    ) -> None:
        self._num_trials, self.devices = hardware.flops_per_s.shape
        self._made_of = hardware, rules, lives, log
        self._plain: PlainRounds | None = None
        if can_be_plain(hardware, rules, lives, log):
            self._plain = PlainRounds(hardware, rules)
        else:
            self._trials = self._make_trials()

    @property
    def is_plain(self) -> bool:
        """Whether all rounds so far were plain, see `otafl.clock.plain_rounds`."""
        return self._plain is not None

    @property
    def trials(self) -> list[TrialClock]:
        """The clocks with SimPy. If all rounds so far were plain, these take over from now on."""
        if self._plain is not None:
            plain, self._plain = self._plain, None
            self._trials = self._make_trials()
            plain.hand_over(self._trials)
            if plain.start is not None:
                self._begin(plain.start)
                if plain.opened_s is not None:
                    self._open_slot()
        return self._trials

    def _make_trials(self) -> list[TrialClock]:
        """Build the clocks with SimPy."""
        hardware, rules, lives, log = self._made_of
        return [
            TrialClock(hardware.select_trial(trial), rules[trial], lives[trial], log)
            for trial in range(self._num_trials)
        ]

    def _find_plain_rounds(self) -> PlainRounds | None:
        """Return the arrays if all rounds so far were plain and the last one has ended."""
        return self._plain if self._plain is not None and self._plain.is_between else None

    def wait_for_devices(self) -> list[int]:
        """Advance each trial until a device is available or at work.

        Returns
        -------
        list of int
            Running trials in which this never happens.
        """
        self._record_call("wait_for_devices")
        if self._find_plain_rounds() is not None:
            return []
        return [
            number
            for number, trial in enumerate(self.trials)
            if not trial.stopped and not trial.wait_for_devices()
        ]

    def get_available(self) -> np.ndarray:
        """Return the mask [S, K] of the devices that are present and not at work."""
        plain = self._find_plain_rounds()
        if plain is not None:
            return np.repeat(plain.running[:, None], self.devices, axis=1)
        return np.stack([trial.get_available() for trial in self.trials])

    def are_all_available(self) -> bool:
        """Return whether all devices of all trials are available."""
        plain = self._find_plain_rounds()
        if plain is not None:
            return bool(plain.running.all())
        return all(trial.are_all_available() for trial in self.trials)

    @property
    def must_ask(self) -> bool:
        """Whether presence is known only for single devices, see `select_first_available`."""
        if self._plain is not None:
            return False
        return any(trial.must_ask for trial in self.trials)

    def select_first_available(self, trial: int, devices: Iterable[int], wanted: int) -> list[int]:
        """Return the first `wanted` of a trial's given devices that are available."""
        return self.trials[trial].select_first_available(devices, wanted)

    def count_present(self) -> np.ndarray:
        """Count the present devices, [S]; nan if every device would have to be asked for."""
        if self._plain is not None:
            return np.full(self._num_trials, float(self.devices))
        return np.array([trial.count_present() for trial in self.trials])

    def get_busy(self) -> np.ndarray:
        """Return the mask [S, K] of the devices with an update that has not been sent."""
        if self._find_plain_rounds() is not None:
            return np.zeros((self._num_trials, self.devices), bool)
        busy = np.zeros((len(self.trials), self.devices), bool)
        for row, trial in zip(busy, self.trials, strict=True):
            row[trial.get_busy()] = True
        return busy

    def begin(
        self,
        round: int,
        participants: Sequence[np.ndarray],
        downlink_s: np.ndarray | float,
        compute_s: np.ndarray,
        compute_w: np.ndarray,
        broadcast_s: np.ndarray | float | None = None,
    ) -> None:
        """Begin a round.

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
            Seconds of the broadcast; the longest downlink_s if not given.
        """
        start = RoundStart(round, participants, downlink_s, compute_s, compute_w, broadcast_s)
        self._record_call("begin", *start)
        if self._plain is None or not self._plain.begin(start):
            self._begin(start)

    def _begin(self, start: RoundStart) -> None:
        """Begin a round with SimPy."""
        columns = [column.tolist() for column in start.expand_columns()]
        none = [None] * len(self.trials)
        whole: Sequence[float | None] = (
            none if start.broadcast_s is None else self._expand_to_trials(start.broadcast_s)
        )
        first = 0
        for trial, devices, longest in zip(self.trials, start.participants, whole, strict=True):
            stop = first + len(devices)
            if not trial.stopped:
                down, seconds, watts = (column[first:stop] for column in columns)
                trial.start(start.round, devices.tolist(), down, seconds, watts, longest)
            first = stop

    def open_slot(self) -> list[Slot]:
        """Advance to the slots and return S of them; the slot of a stopped trial is empty."""
        self._record_call("open_slot")
        if self._plain is not None and self._plain.open_slot(self.together):
            return self._plain.list_slots()
        return self._open_slot()

    def admit(self) -> np.ndarray:
        """Advance to the slots as `open_slot` does.

        Return the mask [S, K] of the devices in them.
        """
        if self._plain is not None and self._plain.open_slot(self.together):
            self._record_call("open_slot")
            return self._plain.get_admitted()
        admitted = np.zeros((self._num_trials, self.devices), bool)
        for row, slot in zip(admitted, self.open_slot(), strict=True):
            row[slot.on_time] = True
        return admitted

    def _open_slot(self) -> list[Slot]:
        """Advance to the slots with SimPy."""
        if self.together == 1:
            return [
                _make_empty_slot(trial) if trial.stopped else trial.admit() for trial in self.trials
            ]
        for trial in self.trials:
            if not trial.stopped:
                trial.reach_slot()
        self._synchronise(self.together)
        return [_make_empty_slot(trial) if trial.stopped else trial.open() for trial in self.trials]

    def synchronise(self, trials: int, seconds: Sequence[float]) -> None:
        """Advance consecutive trials to the latest time of their group, then by `seconds` [S]."""
        self._record_call("meet", trials, seconds)
        plain = self._find_plain_rounds()
        if plain is not None:
            plain.synchronise(trials, seconds)
            return
        self._synchronise(trials)
        for trial, own in zip(self.trials, seconds, strict=True):
            if not trial.stopped:
                trial.wait_until(trial.get_time_s() + own)

    def _synchronise(self, trials: int) -> None:
        """Advance groups of consecutive trials to the latest time of each group, with SimPy."""
        for first in range(0, len(self.trials), trials):
            group = self.trials[first : first + trials]
            last_s = max(trial.get_time_s() for trial in group)
            for trial in group:
                if not trial.stopped:
                    trial.wait_until(last_s)

    def close_slot(
        self,
        airtime_s: np.ndarray | float,
        joules: np.ndarray | None = None,
        on_air_s: np.ndarray | None = None,
        crashed: np.ndarray | None = None,
        downtime_s: np.ndarray | float = 0.0,
    ) -> None:
        """End the round as `TrialClock.transmit` does.

        Parameters
        ----------
        airtime_s : ndarray, [S], or float
            Duration of the slot in seconds.
        joules : ndarray, [S, K], optional
            Energy that each transmitter's amplifier draws.
        on_air_s : ndarray, [S, K], optional
            Duration of each transmission; the whole slot if not given.
        crashed : ndarray, bool [S, K], optional
            Whether each transmitter has crashed.
        downtime_s : ndarray, [S], or float
            Seconds that a crashed device is away after the slot.
        """
        plain, given = self._plain, (airtime_s, joules, on_air_s, crashed, downtime_s)
        if plain is not None and plain.opened_s is not None:
            noted = None if self.journal is None else plain.list_transmitters()
            if plain.close_slot(*given):
                if noted is not None:
                    self._record_call("transmit", *self._list_columns(noted, *given))
                return
        self.transmit(
            *self._list_columns([trial.list_transmitters() for trial in self.trials], *given)
        )

    def _list_columns(
        self,
        transmitters: Sequence[list[int]],
        airtime_s: np.ndarray | float,
        joules: np.ndarray | None,
        on_air_s: np.ndarray | None,
        crashed: np.ndarray | None,
        downtime_s: np.ndarray | float,
    ) -> tuple[Sequence[Any], ...]:
        """Return the arguments of `transmit` from those of `close_slot`."""
        return (
            self._expand_to_trials(airtime_s),
            *(_select_devices(one, transmitters) for one in (joules, on_air_s, crashed)),
            self._expand_to_trials(downtime_s),
        )

    def transmit(self, *columns: Sequence[Any]) -> None:
        """End the round with S values of each argument of `TrialClock.transmit`."""
        self._record_call("transmit", *columns)
        if self._plain is not None:
            airtime_s, *by_device, downtime_s = columns
            joules, on_air_s, crashed = (
                _scatter_to_devices(one, self.devices) for one in by_device
            )
            if self._plain.close_slot(
                np.asarray(airtime_s), joules, on_air_s, crashed, np.asarray(downtime_s)
            ):
                return
        for trial, *own in zip(self.trials, *columns, strict=True):
            if not trial.stopped:
                trial.transmit(*own)

    def get_time_s(self) -> np.ndarray:
        """Return the simulated time [S] in seconds."""
        plain = self._find_plain_rounds()
        if plain is not None:
            return plain.now_s.copy()
        return np.array([trial.get_time_s() for trial in self.trials])

    def compute_spent_j(self) -> np.ndarray:
        """Compute the energy so far in joules, [S, K, causes]."""
        plain = self._find_plain_rounds()
        if plain is not None:
            return plain.compute_spent_j()
        spent = np.empty((len(self.trials), self.devices, len(CAUSES)))
        for own, trial in zip(spent, self.trials, strict=True):
            trial.write_spent_j(own)
        return spent

    def compute_charge_j(self) -> np.ndarray:
        """Compute the charge [S, K] of the batteries in joules, inf on mains."""
        self._record_call("charge_j")  # changes the rounding of the batteries' sums
        if self._plain is not None:
            return np.full((self._num_trials, self.devices), np.inf)
        return np.stack([trial.power.compute_charge_j() for trial in self.trials])

    def count_updates(self) -> tuple[np.ndarray, np.ndarray]:
        """Count the updates [S] started so far, and the updates [S] lost before their slot."""
        plain = self._find_plain_rounds()
        if plain is not None:
            return plain.started.astype(float), np.zeros(self._num_trials)
        started = [float(trial.started) for trial in self.trials]
        return np.array(started), np.array([float(trial.lost) for trial in self.trials])

    def build_timeline(self) -> dict[str, np.ndarray] | None:
        """Build the timeline: the activities of all devices, in the order of their start.

        Returns
        -------
        dict of str to ndarray, float64 [S, events], or None
            Columns device, round, activity (index in `ACTIVITIES`), start_s and end_s, with NaN
            after the last event of a trial. None if no timeline is recorded.
        """
        if self._plain is not None or self.trials[0].intervals is None:
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
        """End a trial for good; the other trials continue."""
        self._record_call("stop", trial)
        plain = self._find_plain_rounds()
        if plain is not None:
            plain.running[trial] = False
            return
        self.trials[trial].stop()

    def replay(self, journal: Sequence[tuple[Any, ...]]) -> None:
        """Repeat the calls of a journal to reach the state of the clock that recorded it.

        This clock then continues to record a journal.

        Parameters
        ----------
        journal : Sequence of tuple
            Words of the methods, each with its arguments.

        Raises
        ------
        ValueError
            If a word is not one that a clock records.
        """
        self.journal = []
        for method, *given in journal:
            if method not in _JOURNAL_METHODS:
                raise ValueError(
                    f"journal: got {method!r}; must be one of {', '.join(_JOURNAL_METHODS)}"
                )
            getattr(self, _JOURNAL_METHODS[method])(*given)

    def _record_call(self, method: str, *given: Any) -> None:
        """Add a call to the journal, if there is one."""
        if self.journal is not None:
            self.journal.append((method, *given))

    def _expand_to_trials(self, value: np.ndarray | float) -> list[float]:
        """Return a number or an array [S] as S numbers."""
        return np.broadcast_to(np.asarray(value, dtype=float), (self._num_trials,)).tolist()


def _make_empty_slot(trial: TrialClock) -> Slot:
    """Make an empty slot at the time of a stopped trial."""
    return Slot(trial.get_time_s(), [], [])


def _scatter_to_devices(values: Sequence[dict[int, Any] | None], devices: int) -> np.ndarray | None:
    """Return values by device, from `_select_devices`, as an array [S, K] with 0 elsewhere."""
    if any(one is None for one in values):
        return None
    out = np.zeros((len(values), devices))
    for row, own in zip(out, cast(Sequence[dict[int, Any]], values), strict=True):
        row[list(own)] = list(own.values())
    return out


def _select_devices(
    values: np.ndarray | None, devices: Sequence[list[int]]
) -> Sequence[dict[int, Any] | None]:
    """Return the values [S, K] of some devices of each trial, by device; None each for None."""
    if values is None:
        return [None] * len(devices)
    return [
        dict(zip(some, row[some].tolist(), strict=True))
        for row, some in zip(values, devices, strict=True)
    ]
