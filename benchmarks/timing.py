"""Timing two things side by side in one run: A B A B ..., medians and the ratio pair by pair."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Pair(NamedTuple):
    """Median seconds of each, and of their ratio slow / fast with its range over the pairs."""

    fast_s: float
    slow_s: float
    ratio: float
    lowest: float
    highest: float


def side_by_side(
    fast: Callable[[], object],
    slow: Callable[[], object],
    pairs: int = 7,
    clock: Callable[[], float] = time.perf_counter,
) -> Pair:
    """Each is called once to warm up, then in turn."""
    fast(), slow()
    times = [(seconds(fast, clock), seconds(slow, clock)) for _ in range(pairs)]
    ratios = sorted(b / a for a, b in times)
    return Pair(
        statistics.median(a for a, _ in times),
        statistics.median(b for _, b in times),
        statistics.median(ratios),
        ratios[0],
        ratios[-1],
    )


def seconds(
    function: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    start = clock()
    function()
    return clock() - start
