"""When devices are present."""

from __future__ import annotations

import itertools
from typing import Any

from otafl.core import registry
from otafl.core.rng import Streams
from otafl.devices.availability import AvailabilitySetup

Changes = list[tuple[float, bool]]


def make_availability(
    name: str, seeds: list[int], trials: list[int], devices: int, **fields: Any
) -> Any:
    """An availability of so many devices of some trials."""
    section = registry.load_settings_class("availability", name)(**fields)
    setup = AvailabilitySetup(devices, Streams(seeds, trials))
    return registry.make_component("availability", section, setup)


def take_changes(life: Any, count: int = 50) -> Changes:
    """The first changes of a life."""
    return list(itertools.islice(life, count))
