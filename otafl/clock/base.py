"""Contract of the clocks of a stack: simulated time, energy and batteries of S trials."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from otafl.core.stateful import Stateful


class Clock(Stateful, ABC):
    """Clocks of S independent trials of K devices. `begin`, `admit` and `close_slot` make a round.

    Stopped trials are skipped.
    """

    together: int = 1
    """Number of consecutive trials that open their slots together, when the last one is ready."""

    journal: list[tuple[Any, ...]] | None = None
    """Calls of the methods and their arguments, if set to a list, for the state of a clock that
    cannot be saved otherwise."""

    @abstractmethod
    def wait_for_devices(self) -> list[int]:
        """Advance each trial until a device is available or at work.

        Returns
        -------
        list of int
            Running trials in which this never happens.
        """

    @abstractmethod
    def get_available(self) -> np.ndarray:
        """Return the mask [S, K] of the devices that are present and not at work."""

    @abstractmethod
    def are_all_available(self) -> bool:
        """Return whether all devices of all trials are available."""

    @abstractmethod
    def count_present(self) -> np.ndarray:
        """Count the present devices, [S]."""

    @abstractmethod
    def get_busy(self) -> np.ndarray:
        """Return the mask [S, K] of the devices with an update that has not been sent."""

    @abstractmethod
    def begin(
        self,
        round: int,
        participants: np.ndarray,
        downlink_s: np.ndarray,
        compute_s: np.ndarray,
        compute_w: np.ndarray,
        broadcast_s: np.ndarray,
    ) -> None:
        """Begin a round.

        Parameters
        ----------
        round : int
            Number of the round.
        participants : ndarray, int64 [N]
            Available devices that take part, as ascending positions in [S * K].
        downlink_s : ndarray, [N]
            Seconds until each participant has the model.
        compute_s, compute_w : ndarray, [N]
            Duration and power of the local work, in the same order.
        broadcast_s : ndarray, [S]
            Seconds of the broadcast.

        Raises
        ------
        ValueError
            If a device is not available, or a duration is negative or not finite.
        """

    @abstractmethod
    def admit(self) -> np.ndarray:
        """Advance to the slots, and return the mask [S, K] of the devices in them."""

    @abstractmethod
    def close_slot(self, airtime_s: np.ndarray, joules: np.ndarray, on_air_s: np.ndarray) -> None:
        """Advance by the slots' airtime. Their devices are then available again.

        Parameters
        ----------
        airtime_s : ndarray, [S]
            Duration of the slot in seconds.
        joules : ndarray, [S, K]
            Energy that each transmitter's amplifier draws.
        on_air_s : ndarray, [S, K]
            Duration of each transmission from the start of the slot, after which the device sleeps.

        Raises
        ------
        ValueError
            If airtime_s is negative or not finite.
        """

    @abstractmethod
    def synchronise(self, trials: int, seconds: Sequence[float]) -> None:
        """Advance consecutive trials to the latest time of their group, then by `seconds` [S]."""

    @abstractmethod
    def get_time_s(self) -> np.ndarray:
        """Return the simulated time [S] in seconds."""

    @abstractmethod
    def compute_spent_j(self) -> np.ndarray:
        """Compute the energy so far in joules, [S, K, causes], with sleep and work until now."""

    @abstractmethod
    def compute_charge_j(self) -> np.ndarray:
        """Compute the charge [S, K] of the batteries in joules, inf on mains."""

    @abstractmethod
    def count_updates(self) -> tuple[np.ndarray, np.ndarray]:
        """Count the updates [S] started so far, and the updates [S] lost before their slot."""

    def build_timeline(self) -> dict[str, np.ndarray] | None:
        """Build the timeline: the activities of all devices, in the order of their start.

        Returns
        -------
        dict of str to ndarray, float64 [S, events], or None
            Columns device, round, activity (index in `ACTIVITIES`), start_s and end_s, with NaN
            after the last event of a trial. None if no timeline is recorded.
        """
        return None

    @abstractmethod
    def stop(self, trial: int) -> None:
        """End a trial for good; the other trials continue."""
