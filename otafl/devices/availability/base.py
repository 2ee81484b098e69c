"""Define the contract of an availability: each device leaves and comes back on its own."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from otafl.core import settings
from otafl.core.rng import Streams, purpose

LIVES = purpose("availability", __name__)

Life = Iterator[tuple[float, bool]]
"""(Seconds since the start, whether the device is there from then on); times rise, values
alternate, and a device that is absent at first begins with (0.0, False)."""


@dataclass(frozen=True)
class AvailabilitySetup:
    """Hold what every law is built from: K devices, and the streams of S trials."""

    devices: int
    streams: Streams

    def generator(self, trial: int, device: int) -> np.random.Generator:
        """Return what the whole life of a device of a trial is drawn from, from its start on."""
        return np.random.Generator(np.random.Philox(self._seeds[device][trial]))

    @functools.cached_property
    def _seeds(self) -> list[list[int]]:
        """Return a seed for each device of each trial, [K][S]."""
        return [self.streams.seeds(LIVES, device) for device in range(self.devices)]


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
    def changes(self, trial: int, device: int) -> Life | None:
        """Return a device's comings and goings; None for one that never leaves."""
