"""Choice of the server of a moving device, by the strongest mean gain with a margin.

A device stays with its server until another one's mean gain, without fast fading, exceeds the
serving one's by the margin (event A3 of 3GPP TS 38.331, 5.5.4.4, without time to trigger).
"""

from __future__ import annotations

import numpy as np

Spans = list[tuple[float, float]]
"""Intervals (start, end) in seconds."""


def choose_servers(gain_db: np.ndarray, margin_db: float) -> np.ndarray:
    """Choose the serving server at each measurement.

    Parameters
    ----------
    gain_db : ndarray [R, C, n]
        Mean gains of n devices to C servers, in R measurements.
    margin_db : float
        Margin for a handover.

    Returns
    -------
    ndarray, int64 [R, n]
        Serving servers; in the first measurement those with the strongest gain.
    """
    best, columns = gain_db.argmax(1), np.arange(gain_db.shape[2])
    serving = best.copy()
    for t in range(1, len(gain_db)):
        gains, own = gain_db[t], serving[t - 1]
        exceeds = gains[best[t], columns] > gains[own, columns] + margin_db
        serving[t] = np.where(exceeds, best[t], own)
    return serving


def list_served_spans(
    serving: np.ndarray, time_s: np.ndarray, presence_s: np.ndarray, servers: int
) -> list[list[Spans]]:
    """List the intervals in which each server serves each device.

    Parameters
    ----------
    serving : ndarray, int64 [R, K]
        Serving server of each device.
    time_s : ndarray [R]
        Times of the measurements.
    presence_s : ndarray [K, 2]
        Seconds from which and until which a device is present.
    servers : int
        Number of servers C.

    Returns
    -------
    list of list of Spans
        [C][K] intervals.
    """
    spans: list[list[Spans]] = [[[] for _ in presence_s] for _ in range(servers)]
    for k, (enters_s, leaves_s) in enumerate(presence_s.tolist()):
        changes = np.flatnonzero(np.diff(serving[:, k])) + 1
        ends_s = [*time_s[changes].tolist(), leaves_s]
        start_s = enters_s
        for first, end_s in zip([0, *changes], ends_s, strict=True):
            end_s = min(end_s, leaves_s)
            if end_s > start_s:
                spans[serving[first, k]][k].append((start_s, end_s))
                start_s = end_s
    return spans
