"""Contract of an availability: each device leaves and returns independently of the others."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, overload

import numpy as np

from otafl.core import settings
from otafl.core.rng import Streams, declare_purpose

LIVES = declare_purpose("availability", __name__)

MIN_S, MAX_S = 1e-3, 1e9
"""Shortest and longest mean times.

Shorter ones cause a million events in a quarter of an hour of one device, and longer ones exceed
thirty years, longer than any run.
"""

Life = Iterator[tuple[float, bool]]
"""Changes of a device's presence: seconds since the start, and whether it is present from then on.

Times rise and values alternate. A device that is absent at first begins with (0.0, False).
"""


@dataclass(frozen=True)
class AvailabilitySetup:
    """Parameters that every availability is built from.

    Parameters
    ----------
    devices : int
        Number of devices K.
    streams : Streams
        Random streams of S trials.
    """

    devices: int
    streams: Streams

    def build_generator(self, trial: int, device: int) -> np.random.Generator:
        """Return the random generator of a device's life in a trial, at its start."""
        return np.random.Generator(np.random.Philox(self._seed_streams(device)[trial]))

    @functools.cached_property
    def _seed_streams(self) -> Callable[[int], list[int]]:
        """The function device -> seeds of its lives, one for each trial."""
        return functools.lru_cache(maxsize=4096)(functools.partial(self.streams.draw_seeds, LIVES))


class Availability(ABC):
    """Presence of the devices over time.

    Parameters
    ----------
    settings : Availability.Settings
        Settings of the component.
    setup : AvailabilitySetup
        Number of devices, and random streams.
    """

    leave: ClassVar[bool] = True
    """Whether devices can leave; otherwise `list_changes` is never called."""

    class Settings(settings.Settings):
        """Section `devices.availability` of a scenario."""

    def __init__(self, settings: Any, setup: AvailabilitySetup) -> None:
        self.settings, self.setup = settings, setup

    @abstractmethod
    def list_changes(self, trial: int, device: int) -> Life | None:
        """Return the life of a device in a trial.

        Parameters
        ----------
        trial, device : int
            Numbers of trial and device.

        Returns
        -------
        Life, optional
            Changes of its presence; None for a device that never leaves.
        """


class Lives(Sequence[Life | None]):
    """Lives of a trial's devices, each started anew at every access.

    Parameters
    ----------
    availability : Availability
        Law of the lives.
    trial : int
        Number of the trial.
    devices : int
        Number of devices K.
    """

    def __init__(self, availability: Availability, trial: int, devices: int) -> None:
        self._availability, self._trial, self._devices = availability, trial, devices

    @overload
    def __getitem__(self, device: int) -> Life | None: ...
    @overload
    def __getitem__(self, device: slice) -> list[Life | None]: ...
    def __getitem__(self, device: int | slice) -> Life | list[Life | None] | None:
        if isinstance(device, slice):
            return [self[k] for k in range(*device.indices(len(self)))]
        if not 0 <= device < self._devices:
            raise IndexError(f"device: got {device}; must be in 0..{self._devices - 1}")
        return self._availability.list_changes(self._trial, device)

    def __len__(self) -> int:
        """Return K."""
        return self._devices
