"""Print a comparison for `otafl diff`, in any width."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from otafl.analysis.comparison import CodeDifference, Comparison, VariableDifference
from otafl.analysis.summary import format_number, make_table
from otafl.core.console import make_console
from otafl.core.suggestions import format_count
from otafl.results.coordinates import format_value


def print_comparison(found: Comparison, console: Console | None = None) -> None:
    """Print a comparison in the console's width: as tables where they fit, else as records."""
    console = console or make_console()
    for side, name in zip("AB", found.names, strict=True):
        console.print(f"{side}: {name}")
    if found.settings:
        _print_pairs(console, "settings that differ", found.settings)
    else:
        console.print("\nno setting differs")
    if found.common_points is None:
        console.print("\na scenario has no numbers; only settings were compared")
        return
    if found.computed_by:
        _print_code(console, found.computed_by, found.common_points)
    if found.about:
        _print_pairs(console, "made with", found.about)
    console.print(f"\n{format_count(found.common_points, 'point')} in common")
    for line in found.lacking:
        console.print(f"  {line}")
    if found.common_points:
        _print_numbers(console, found.variables, found.tolerance)
    for one in found.ignored:
        console.print(f"\nnot counted: {one.name} differs by up to {format_number(one.largest)}")
    also = ", and so do code or data that they were computed by" if found.computed_by else ""
    console.print(f"\n{f'A and B differ{also}' if found.differs else 'nothing differs'}")


def _print_code(console: Console, changed: Sequence[CodeDifference], points: int) -> None:
    console.print("\ncode and data that differ, by their hashes, so numbers may differ")
    rows = []
    for one in changed:
        values = ("-" if value is None else value for value in one.values)
        rows.append((one.what, *values, f"{one.points} of {points}"))
    _print_table(console, ("", "A", "B", "points"), rows)


def _print_pairs(console: Console, title: str, pairs: dict[str, Any]) -> None:
    console.print(f"\n{title}")
    _print_table(
        console, ("", "A", "B"), [(key, *map(_format_value, pair)) for key, pair in pairs.items()]
    )


def _print_numbers(
    console: Console, variables: Sequence[VariableDifference], tolerance: float
) -> None:
    changed = [one for one in variables if one.differing]
    equal = [one.name for one in variables if not one.differing]
    if equal:
        how = f"equal within {tolerance:g}" if tolerance else "exactly equal"
        console.print(f"\n{how} in {format_count(len(equal), 'variable')}: {', '.join(equal)}")
    if not changed:
        return
    console.print("\nnumbers that differ: the largest absolute and relative difference")
    titles = ("variable", "differ", "largest", "relative", "A", "B", "at")
    rows = []
    for one in changed:
        at = ", ".join(f"{v}" if k == "point" else f"{k} {v}" for k, v in one.at.items())
        differ = f"{one.differing} of {one.compared}"
        if one.only_one_finite:
            differ += f", {one.only_one_finite} in one only"
        values = map(format_number, one.values)
        largest = format_number(one.largest, 3), format_number(one.largest_relative, 2)
        rows.append((one.name, differ, *largest, *values, at))
    _print_table(console, titles, rows)
    console.print("\notafl compare tests differences at the end, over pairs of trials")


def _print_table(console: Console, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = make_table()
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _format_value(value: Any) -> str:
    if value is None:
        return "-"
    return json.dumps(value, default=str) if isinstance(value, list | dict) else format_value(value)
