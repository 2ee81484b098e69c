"""Results of the laws, as a table for the terminal, as rows for files and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from otafl.core.files import write_csv
from otafl.validation.checks import LEVEL, MOST_CHECKS, SUITE_LEVEL, Check
from otafl.validation.suite import LawOutcome

COLUMNS = ("law", "source", "case", "expected", "measured", "low", "high", "pass", "fault")


def print_table(outcomes: Sequence[LawOutcome], console: Console) -> None:
    """Print a line for each law, and the reasons why laws could not be checked.

    The line has the numbers of the case nearest to the end of its interval. If cases failed, each
    has a line with its name.
    """
    table = Table(box=None, pad_edge=False)
    table.add_column("law", overflow="fold")
    for title in ("expected", "measured"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("interval", no_wrap=True)
    table.add_column("cases", justify="right")
    table.add_column("pass", no_wrap=True)
    for outcome in outcomes:
        hardest = outcome.hardest
        if hardest is None:
            table.add_row(outcome.law.name, "", "", "", "0", "FAIL")
            continue
        failed = [check for check in outcome.checks if not check.is_passed]
        for check in failed or [hardest]:
            case = f" [{check.case}]" if check.case and failed else ""
            table.add_row(
                outcome.law.name + case,
                *_format_numbers(check),
                str(len(outcome.checks)),
                "pass" if check.is_passed else "FAIL",
            )
    console.print(table)
    for outcome in outcomes:
        if outcome.fault:
            console.print(f"{outcome.law.name}: {outcome.fault}")


def format_summary(outcomes: Sequence[LawOutcome]) -> str:
    """Return one sentence with the number of laws that hold, and the false-alarm level."""
    count = sum(len(outcome.checks) for outcome in outcomes)
    failed = sum(not outcome.is_passed for outcome in outcomes)
    result = f"{failed} of {len(outcomes)} laws failed" if failed else f"{len(outcomes)} laws hold"
    return (
        f"{result} ({count} checks, each at a false-alarm level of {LEVEL:.0e}; {SUITE_LEVEL:.0e} "
        f"for up to {MOST_CHECKS} of them)"
    )


def write_checks(outcomes: Sequence[LawOutcome], path: Path) -> None:
    """Write a line for each check as CSV."""
    write_csv(path, COLUMNS, ([row.get(name) for name in COLUMNS] for row in build_rows(outcomes)))


def draw_figure(outcomes: Sequence[LawOutcome], path: Path) -> None:
    """Draw where every measured number lies in its interval, one line for each family of laws.

    Parameters
    ----------
    outcomes : Sequence of LawOutcome
        Outcomes of the laws.
    path : Path
        File of a format that Matplotlib writes.
    """
    families: dict[str, list[Check]] = {}
    for outcome in outcomes:
        family = outcome.law.name.split(" ")[0].rstrip(":")
        families.setdefault(family, []).extend(outcome.checks)
    figure = Figure(figsize=(7.0, 1.2 + 0.25 * len(families)), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(-1.0, 1.0, color="0.93")
    for place, checks in enumerate(families.values()):
        for is_passed, colour in ((True, "tab:blue"), (False, "tab:red")):
            strains = [one.signed_strain for one in checks if one.is_passed == is_passed]
            x = np.clip(strains, -2.0, 2.0)
            axes.plot(x, np.full(len(x), place), ".", color=colour, alpha=0.4)
    axes.set_yticks(range(len(families)), list(families))
    axes.invert_yaxis()
    axes.set_xlim(-2.1, 2.1)
    axes.set_xlabel("deviation from the law, relative to the end of the interval")
    figure.savefig(path)


def build_rows(outcomes: Sequence[LawOutcome]) -> list[dict[str, Any]]:
    """Return a mapping of COLUMNS for every check.

    A law that could not be checked has one without numbers.
    """
    out = []
    for outcome in outcomes:
        named = {"law": outcome.law.name, "source": outcome.law.source, "fault": outcome.fault}
        if outcome.fault:
            out.append(dict.fromkeys(COLUMNS) | named | {"pass": False})
        for check in outcome.checks:
            numbers = {name: _to_finite(getattr(check, name)) for name in COLUMNS[3:7]}
            out.append(named | {"case": check.case, "pass": check.is_passed} | numbers)
    return out


def _to_finite(value: float) -> float | None:
    """Return a number, None if it is not finite."""
    return float(value) if abs(value) < float("inf") else None


def _format_numbers(check: Check) -> tuple[str, str, str]:
    """Format the expected value, the measured value and the interval."""
    below, above = check.expected - check.low, check.high - check.expected
    interval = f"{_format_short(check.low)} .. {_format_short(check.high)}"
    if abs(above - below) <= 1e-3 * abs(above):
        interval = f"± {above:.2g}"
    if check.low == -float("inf"):
        interval = f"<= {_format_short(check.high)}"
    elif check.high == float("inf"):
        interval = f">= {_format_short(check.low)}"
    return _format_short(check.expected), _format_short(check.measured), interval


def _format_short(value: float) -> str:
    """Format a number with four digits."""
    return f"{value:.4g}"
