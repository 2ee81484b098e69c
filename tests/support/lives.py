"""Comings and goings of devices, and what they are at an instant."""

from __future__ import annotations

import itertools
from typing import Any

from scipy import stats

from otafl.core import registry
from otafl.core.rng import Streams
from otafl.devices.availability import AvailabilitySetup

LEVEL = 1e-4
DEVICES = 3000

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


def record_traces(name: str, until_s: float, **fields: Any) -> list[list[tuple[float, bool]]]:
    """Of 3000 devices, each beginning with what it is at 0."""
    availability = make_availability(name, [11], [0], DEVICES, **fields)
    out = []
    for device in range(DEVICES):
        changes = availability.list_changes(0, device)
        life = list(itertools.takewhile(lambda change: change[0] <= until_s, changes))
        out.append(life if life and life[0][0] == 0.0 else [(0.0, True), *life])
    return out


def get_state(life: list[list[tuple[float, bool]]], at_s: float) -> int:
    """How many devices."""
    return sum(next(on for when, on in reversed(one) if when <= at_s) for one in life)


def measure_intervals(
    life: list[list[tuple[float, bool]]], on: bool, before_s: float
) -> list[float]:
    """Whole stays that began after 0 and before an instant long before the end."""
    return [
        b[0] - a[0]
        for one in life
        for a, b in itertools.pairwise(one)
        if a[1] == on and 0 < a[0] < before_s
    ]


def check_share(count: int, share: float, level: float) -> None:
    """So many devices of all are there by a binomial law of this share."""
    assert stats.binomtest(count, DEVICES, share).pvalue > level
