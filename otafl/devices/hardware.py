"""Hold what the devices are made of: how fast they compute, and what their parts draw.

Nothing here knows of time; a device has the same hardware for the whole of a trial.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Hardware:
    """Hold float64 arrays of one shape, [K] for a trial or [S, K] for a stack; not to be written
    to, as what all devices have alike is one number in memory.

    flops_per_s: operations a second at frequency_hz, the highest clock frequency;
    frequency_min_hz: the lowest. kappa: J s^2 / cycle^3. memory_mb: MiB for training, inf where it
    is no bound. battery_j: capacity, inf on mains; charge_j: at the start; restart_j: charge at
    which a device whose battery was empty comes back. harvest_w: power that charges the battery.
    circuit_w: drawn by the radio while it transmits, beside what it radiates over `efficiency`.
    receive_w: while it receives. idle_w: while a device at work waits for its slot. sleep_w: while
    it has nothing to do. power_db: transmit power over that of the channel's settings.
    """

    flops_per_s: np.ndarray
    frequency_hz: np.ndarray
    frequency_min_hz: np.ndarray
    kappa: np.ndarray
    memory_mb: np.ndarray
    battery_j: np.ndarray
    charge_j: np.ndarray
    restart_j: np.ndarray
    harvest_w: np.ndarray
    circuit_w: np.ndarray
    receive_w: np.ndarray
    idle_w: np.ndarray
    sleep_w: np.ndarray
    efficiency: np.ndarray
    power_db: np.ndarray

    @staticmethod
    def stack(trials: Sequence[Hardware]) -> Hardware:
        """Join the hardware [K] of S trials to [S, K]."""
        names = [part.name for part in fields(Hardware)]
        return Hardware(*(_stack_trials([getattr(one, name) for one in trials]) for name in names))

    def select_trial(self, trial: int) -> Hardware:
        """Return the hardware [K] of a trial, the same memory."""
        return Hardware(*(getattr(self, part.name)[trial] for part in fields(Hardware)))

    def select_rows(self, *at: np.ndarray) -> Hardware:
        """Return the named entries of each array, as of [S, K] the pairs trial [N], device [N]."""
        return Hardware(*(getattr(self, part.name)[at] for part in fields(Hardware)))

    @functools.cached_property
    def is_on_mains(self) -> bool:
        """Say whether no device has a battery."""
        return bool(np.isinf(self.battery_j).all())


def _stack_trials(trials: Sequence[np.ndarray]) -> np.ndarray:
    """Return the [K] of S trials as [S, K]."""
    if any(one.strides != (0,) for one in trials):
        return trials[0][None] if len(trials) == 1 else np.stack(trials)
    return np.broadcast_to(np.stack([one[:1] for one in trials]), (len(trials), len(trials[0])))
