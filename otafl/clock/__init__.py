"""Simulated time of the devices. `build` makes the clocks of a stack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from otafl.clock.array_clock import ArrayClock, are_plain
from otafl.clock.base import Clock
from otafl.clock.event_clock import EventClock
from otafl.core.rng import Streams
from otafl.devices.availability import build_lives, yield_life
from otafl.devices.hardware import Hardware


def build(
    sections: Sequence[Any],
    hardware: Hardware,
    streams: Streams,
    log: bool = False,
    presence: Sequence[Sequence[Sequence[tuple[float, float]]]] | None = None,
) -> Clock:
    """Build the clocks of S trials.

    Parameters
    ----------
    sections : Sequence
        Sections `devices` of the scenarios, one for each of the S trials.
    hardware : Hardware, arrays [S, K]
        Hardware of the devices.
    streams : Streams
        Random streams of the trials.
    log : bool
        Whether to record a timeline: the activities of every device.
    presence : sequence, optional
        Intervals (start, end) in seconds in which each device is present, [S][K], in place of the
        availability's.

    Returns
    -------
    Clock
        Clocks of the trials, with the rules of their protocols and the lives of their devices: with
        arrays if all rounds are plain and no timeline is recorded, or else with SimPy.
    """
    first = sections[0]
    rules = [
        one.protocol.build_rules(math.inf if one.deadline_s is None else one.deadline_s, one.late)
        for one in sections
    ]
    if presence is None:
        lives = build_lives(first.availability, first.count, streams)
    else:
        lives = [[yield_life(spans) for spans in own] for own in presence]
    if are_plain(hardware, rules, lives) and not log:
        return ArrayClock(hardware)
    return EventClock(hardware, rules, lives, log)
