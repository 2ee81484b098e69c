"""Give each power policy the same colour, marker and line in every figure."""

from __future__ import annotations

from typing import Any

PEAK_TCI = "tci(constraint=peak)"
POLICIES = {
    "none": ("#000000", "o", "-"),
    "cao_static": ("#0072B2", "s", "-"),
    "cao_average": ("#009E73", "D", "--"),
    "smcv": ("#56B4E9", "^", ":"),
    "full": ("#E69F00", "v", "-"),
    "open_loop": ("#882255", ">", ":"),
    "gbma": ("#D55E00", "<", "-"),
    "tci": ("#7F7F7F", "X", "-."),
    PEAK_TCI: ("#332288", "d", "-"),
    "ci": ("#EE66AA", "P", "-"),
    "multi_antenna_ci": ("#8C510A", "h", "--"),
    "cotaf": ("#999933", "*", "-."),
    "blind": ("#5E3C99", "p", "--"),
}
"""Policy -> colour, marker and line, in the legend's order.

Curves that run together differ in line and lightness, so the figure can be read without colours.
"""
TYPE = {"font.size": 12, "axes.titlesize": 13, "xtick.labelsize": 11, "ytick.labelsize": 11}
"""Points in a figure of ten inches: 9 points at the least where it is shown 800 pixels wide."""
UPLINKS = {
    "sums in phase": ("#0072B2", ("ci", "tci", "gbma", "cotaf", "cao_static", "pre_scaler")),
    "votes in phase": ("#009E73", ("one bit, ci", "one bit, tci")),
    "no phase": ("#D55E00", ("FSK-MV", "FSK-MV, absentees", "REED")),
    "types": ("#5E3C99", ("TBMA",)),
    "packets": ("#000000", ("top-k 0.3 %", "top-k 1 %", "2 bits")),
}
"""Kind of uplink -> its colour, and its uplinks in the order of `scenarios/studies/field.yaml`."""


def policy(name: str) -> dict[str, Any]:
    """Return what plots take; hollow markers on broken lines, which show a curve beneath."""
    color, marker, line = POLICIES[name]
    style = {"color": color, "marker": marker, "ls": line, "ms": 6}
    return style if line == "-" else style | {"mfc": "none"}
