"""Clocks of one trial under a protocol, with devices that come and go."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from support.made_devices import make_mains_hardware

from otafl.clock.trial_clock import TrialClock
from otafl.devices.protocols import Protocol

Lives = list[list[tuple[float, bool]] | None]


def make_clock(
    protocol: Protocol, lives: Lives | None = None, devices: int = 3, **rules: Any
) -> TrialClock:
    """Devices on mains."""
    made = protocol.build_rules(rules.get("deadline_s", math.inf), rules.get("late", "drop"))
    each: list[Iterator | None] = [None if one is None else iter(one) for one in lives or []]
    return TrialClock(make_mains_hardware(devices), made, each, log=True)


def start_round(clock: TrialClock, round: int, work: dict[int, float], down: float = 0.0) -> None:
    """Devices that start now, and the seconds that they compute."""
    rows = len(work)
    clock.start(round, list(work), [down] * rows, list(work.values()), [0.0] * rows)
