"""When an uplink slot opens, and who is in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from otafl.devices.config_protocol import AsynchronousConfig, Late, PeriodicConfig, QuorumConfig


@dataclass(frozen=True)
class Rules:
    """When a trial's slots open, and who is in them.

    ready: devices that must be ready, or all that are at work; 0 opens at instants alone. period_s:
    between these. deadline_s: from the start of the round to the slot at the latest. most: devices
    in a slot, those who were ready first. late: what becomes of those at work who are not ready.
    broadcast_first: whether the broadcast must be over.
    """

    ready: float = math.inf
    period_s: float = math.inf
    deadline_s: float = math.inf
    most: int | None = None
    late: Late = "drop"
    broadcast_first: bool = True


def rules_of(config: Any, deadline_s: float | None, late: Late) -> Rules:
    """The rules of a protocol's settings, `devices.deadline_s` and `devices.late`."""
    deadline = math.inf if deadline_s is None else deadline_s
    if isinstance(config, PeriodicConfig):
        return Rules(0, config.period_s, late="next", broadcast_first=False)
    if isinstance(config, QuorumConfig):
        return Rules(config.ready, deadline_s=deadline, late="next", broadcast_first=False)
    if isinstance(config, AsynchronousConfig):
        return Rules(1, most=config.together, late="next", broadcast_first=False)
    return Rules(deadline_s=deadline, late=late)
