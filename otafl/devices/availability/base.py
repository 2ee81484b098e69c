"""Define the contract of an availability: each device leaves and comes back on its own."""

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
"""Shortest and longest mean times: shorter ones would take the clock a million events for each
quarter of an hour of a device, and thirty years are longer than any run."""

Life = Iterator[tuple[float, bool]]
"""(Seconds since the start, whether the device is there from then on); times rise, values
alternate, and a device that is absent at first begins with (0.0, False)."""


@dataclass(frozen=True)
class AvailabilitySetup:
    """Hold what every law is built from: K devices, and the streams of S trials."""

    devices: int
    streams: Streams

    def build_generator(self, trial: int, device: int) -> np.random.Generator:
        """Return what the whole life of a device of a trial is drawn from, from its start on."""
        return np.random.Generator(np.random.Philox(self._seed_streams(device)[trial]))

    @functools.cached_property
    def _seed_streams(self) -> Callable[[int], list[int]]:
        """Return what says the seeds of a device, one for each trial."""
        return functools.lru_cache(maxsize=4096)(functools.partial(self.streams.draw_seeds, LIVES))


class Availability(ABC):
    """Say when devices are there.

    Parameters
    ----------
    settings : the law's, of its class `Settings`.
    setup : what every law is built from.
    """

    leave: ClassVar[bool] = True
    """Devices may leave; else nobody asks when they do."""

    class Settings(settings.Settings):
        """Describe the section `devices.availability` of a scenario."""

    def __init__(self, settings: Any, setup: AvailabilitySetup) -> None:
        self.settings, self.setup = settings, setup

    @abstractmethod
    def list_changes(self, trial: int, device: int) -> Life | None:
        """Return a device's comings and goings; None for one that never leaves."""


class Lives(Sequence[Life | None]):
    """Begin the lives of a trial's devices, when they are asked for."""

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
            raise IndexError(f"device {device} of {self._devices}")
        return self._availability.list_changes(self._trial, device)

    def __len__(self) -> int:
        """Return K."""
        return self._devices
