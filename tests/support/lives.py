"""When devices are present."""

from __future__ import annotations

import itertools
from typing import Any

from otafl.core import registry
from otafl.core.rng import Streams
from otafl.devices.availability import build_lives

Changes = list[tuple[float, bool]]


def make_lives(
    name: str, seeds: list[int], trials: list[int], devices: int, **fields: Any
) -> list[list[Any]]:
    """The lives of so many devices of some trials."""
    availability: Any = registry.load_settings_class("availability", name)(**fields)
    return build_lives(availability, devices, Streams(seeds, trials))


def take_changes(life: Any, count: int = 50) -> Changes:
    """The first changes of a life."""
    return list(itertools.islice(life, count))
