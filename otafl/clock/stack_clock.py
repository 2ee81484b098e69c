"""Keep the clocks of a stack: simulated time, joules and batteries of S independent trials, see
`otafl.clock.trial_clock`."""

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

_NOTED = {
    **{name: name for name in ("wait_for_devices", "begin", "open_slot", "transmit")},
    "charge_j": "compute_charge_j",
    "stop": "stop",
    "meet": "synchronise",
}
"""Word in a journal -> the method that it stands for."""


class Clock:
    """Keep the clocks of S independent trials. `begin`, `open_slot`, `close_slot` make a round;
    trials that stopped are passed over.

    hardware: [S, K]. rules: S of them. lives: S times K. journal: what was called with what, if a
    list is put there, see `replay`. Plain rounds are gone through with arrays, see
    `otafl.clock.plain_rounds`.
    """

    journal: list[tuple[Any, ...]] | None = None

    together: int = 1
    """So many trials in a row open their slots at the same instant, that of the last of them."""

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
        """The clocks with SimPy. If the rounds so far were plain, these take over from now on."""
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
        hardware, rules, lives, log = self._made_of
        return [
            TrialClock(hardware.select_trial(trial), rules[trial], lives[trial], log)
            for trial in range(self._num_trials)
        ]

    def _find_plain_rounds(self) -> PlainRounds | None:
        """Return the arrays if all rounds so far were plain and the last one has ended."""
        return self._plain if self._plain is not None and self._plain.is_between else None

    def wait_for_devices(self) -> list[int]:
        """Advance until in each trial a device is available or at work. Return the running trials
        in which that will never be."""
        self._record_call("wait_for_devices")
        if self._find_plain_rounds() is not None:
            return []
        return [
            number
            for number, trial in enumerate(self.trials)
            if not trial.stopped and not trial.wait_for_devices()
        ]

    def get_available(self) -> np.ndarray:
        """Return the devices [S, K] bool that are there and not at work."""
        plain = self._find_plain_rounds()
        if plain is not None:
            return np.repeat(plain.running[:, None], self.devices, axis=1)
        return np.stack([trial.get_available() for trial in self.trials])

    def are_all_available(self) -> bool:
        """Return whether every device of every trial is."""
        plain = self._find_plain_rounds()
        if plain is not None:
            return bool(plain.running.all())
        return all(trial.are_all_available() for trial in self.trials)

    @property
    def must_ask(self) -> bool:
        """Whether presence is known only by asking devices: see `select_first_available`."""
        if self._plain is not None:
            return False
        return any(trial.must_ask for trial in self.trials)

    def select_first_available(self, trial: int, devices: Iterable[int], wanted: int) -> list[int]:
        """Return those of a trial's devices that are available, the first so many."""
        return self.trials[trial].select_first_available(devices, wanted)

    def count_present(self) -> np.ndarray:
        """Return how many devices are there, [S]; nan where that would take asking for each."""
        if self._plain is not None:
            return np.full(self._num_trials, float(self.devices))
        return np.array([trial.count_present() for trial in self.trials])

    def get_busy(self) -> np.ndarray:
        """Return the devices [S, K] bool with an update that has not been sent."""
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
        participants : S arrays of available devices.
        downlink_s, compute_s, compute_w : [N] in their order, trial by trial; downlink_s may be one
            number for all.
        broadcast_s : [S] until all have the model; the longest downlink_s if not given.
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
        """Advance to the slots. Return S of them, a stopped trial's empty."""
        self._record_call("open_slot")
        if self._plain is not None and self._plain.open_slot(self.together):
            return self._plain.list_slots()
        return self._open_slot()

    def admit(self) -> np.ndarray:
        """Advance to the slots as `open_slot` does. Return the devices [S, K] bool in them."""
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
                _get_nothing(trial) if trial.stopped else trial.admit() for trial in self.trials
            ]
        for trial in self.trials:
            if not trial.stopped:
                trial.reach_slot()
        self._synchronise(self.together)
        return [_get_nothing(trial) if trial.stopped else trial.open() for trial in self.trials]

    def synchronise(self, trials: int, seconds: Sequence[float]) -> None:
        """Let each so many trials in a row wait for the last of them, and then for so long, [S]."""
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
        """End the round, as `TrialClock.transmit` says.

        Parameters
        ----------
        airtime_s, downtime_s : [S] or one number.
        joules, on_air_s, crashed : [S, K], of which what those say who transmit counts.
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
        """Return what `transmit` is given, of what `close_slot` is."""
        return (
            self._expand_to_trials(airtime_s),
            *(_select_devices(one, transmitters) for one in (joules, on_air_s, crashed)),
            self._expand_to_trials(downtime_s),
        )

    def transmit(self, *columns: Sequence[Any]) -> None:
        """End the round: what `TrialClock.transmit` is given, S each."""
        self._record_call("transmit", *columns)
        if self._plain is not None:
            airtime_s, downtime_s = np.asarray(columns[0]), np.asarray(columns[4])
            joules, on_air_s, crashed = (
                _scatter_to_devices(one, self.devices) for one in columns[1:4]
            )
            if self._plain.close_slot(airtime_s, joules, on_air_s, crashed, downtime_s):
                return
        for trial, *own in zip(self.trials, *columns, strict=True):
            if not trial.stopped:
                trial.transmit(*own)

    def get_time_s(self) -> np.ndarray:
        """Return the simulated seconds, [S]."""
        plain = self._find_plain_rounds()
        if plain is not None:
            return plain.now_s.copy()
        return np.array([trial.get_time_s() for trial in self.trials])

    def compute_spent_j(self) -> np.ndarray:
        """Return the joules [S, K, causes] so far."""
        plain = self._find_plain_rounds()
        if plain is not None:
            return plain.compute_spent_j()
        spent = np.empty((len(self.trials), self.devices, len(CAUSES)))
        for own, trial in zip(spent, self.trials, strict=True):
            trial.write_spent_j(own)
        return spent

    def compute_charge_j(self) -> np.ndarray:
        """Return the charge [S, K] of the batteries, inf on mains."""
        self._record_call("charge_j")  # batteries add up until now, which rounds
        if self._plain is not None:
            return np.full((self._num_trials, self.devices), np.inf)
        return np.stack([trial.power.compute_charge_j() for trial in self.trials])

    def count_updates(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the updates [S] started so far, and those [S] lost before their slot."""
        plain = self._find_plain_rounds()
        if plain is not None:
            return plain.started.astype(float), np.zeros(self._num_trials)
        started = [float(trial.started) for trial in self.trials]
        return np.array(started), np.array([float(trial.lost) for trial in self.trials])

    def build_timeline(self) -> dict[str, np.ndarray] | None:
        """Return what every device did, by start: device, round, activity (place in `ACTIVITIES`),
        start_s, end_s, float64 [S, events], NaN after a trial's last; None where it was not
        logged."""
        if self._plain is not None or self.trials[0].list_intervals is None:
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
        """End a trial for good; the others go on."""
        self._record_call("stop", trial)
        plain = self._find_plain_rounds()
        if plain is not None:
            plain.running[trial] = False
            return
        self.trials[trial].stop()

    def replay(self, journal: Sequence[tuple[Any, ...]]) -> None:
        """Go through what the journal of a clock that was made alike holds, to be where that one
        was. Keep a journal from then on. Raises ValueError for anything else than a journal."""
        self.journal = []
        for method, *given in journal:
            if method not in _NOTED:
                raise ValueError(f"{method!r} is nothing that a clock notes")
            getattr(self, _NOTED[method])(*given)

    def _record_call(self, method: str, *given: Any) -> None:
        if self.journal is not None:
            self.journal.append((method, *given))

    def _expand_to_trials(self, value: np.ndarray | float) -> list[float]:
        """Return S numbers of one or of [S]."""
        return np.broadcast_to(np.asarray(value, dtype=float), (self._num_trials,)).tolist()


def _get_nothing(trial: TrialClock) -> Slot:
    return Slot(trial.get_time_s(), [], [])


def _scatter_to_devices(values: Sequence[dict[int, Any] | None], devices: int) -> np.ndarray | None:
    """Return the values [S, K] of what `_select_devices` returned, 0 for the other devices."""
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
