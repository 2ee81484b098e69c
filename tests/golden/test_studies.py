"""The committed page about the physical layer says what its scripts print of the committed results.

Mutations that make a test here fail: a number of the page changed, a table left out, a script that
chooses the worst step size or takes means for medians.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference"
PAGE = (ROOT / "results" / "physical_layer.md").read_text().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments", "figure"),
    [
        ("aggregation_error", ["--folder", str(REFERENCE), "--out"], "aggregation_error"),
        ("policy_accuracy", [str(REFERENCE / "policies.nc"), "--figure"], "policy_accuracy"),
        ("analog_vs_digital", [str(REFERENCE / "analog_vs_digital.nc"), "--figure"], "analog"),
    ],
)
def test_tables(script: str, arguments: list[str], figure: str, tmp_path: Path) -> None:
    path = tmp_path / f"{figure}.png"
    command = [sys.executable, str(ROOT / "scripts" / f"{script}.py"), *arguments, str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "MPLBACKEND": "agg"}
    )
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) >= 16
    assert [row for row in rows if row not in PAGE] == []
    assert path.stat().st_size > 10_000


def test_policies_look_different() -> None:
    """Colours, and markers with lines, are each their own: one of the two is enough to tell."""
    looks = runpy.run_path(str(ROOT / "scripts" / "looks.py"))["POLICIES"]
    assert len({colour for colour, _, _ in looks.values()}) == len(looks) == 14
    assert len({(marker, line) for _, marker, line in looks.values()}) == len(looks)


def test_each_study_shows_where_methods_break_and_where_they_hold() -> None:
    text = "\n".join(PAGE)
    assert text.count("- collapses (below 0.3): ") == 2
    assert text.count("- within a point of ideal: ") == 2
    assert "nothing" not in text
    assert "not reached" in text
