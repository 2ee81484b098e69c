"""The committed pages say what their scripts print of the committed results.

Tables between markers are compared by `tests/scripts/test_write_tables.py`.

Mutations that make a test here fail: a number of a page changed, a table left out, the wrong point,
round or model taken.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "page", "folder", "option", "pictures", "least"),
    [
        ("laser", "laser", "laser_figure.nc", ["--figure", "{}/laser.png"], 1, 17),
        ("theory", "theory", "", ["--figure", "{}/theory.png"], 1, 50),
    ],
)
def test_tables(
    script: str,
    page: str,
    folder: str,
    option: list[str],
    pictures: int,
    least: int,
    tmp_path: Path,
) -> None:
    command = [sys.executable, str(ROOT / "scripts" / f"{script}.py"), str(REFERENCE / folder)]
    command += [part.format(tmp_path) for part in option]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "MPLBACKEND": "agg"}
    )
    assert done.returncode == 0, done.stderr
    told = (ROOT / "results" / f"{page}.md").read_text().splitlines()
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) >= least
    assert [row for row in rows if row not in told] == []
    drawn = list(tmp_path.glob("*.png"))
    assert len(drawn) == pictures
    assert all(path.stat().st_size > 10_000 for path in drawn)


@pytest.mark.parametrize(
    ("name", "diverged"),
    [("personal/personal_fading", 2050), ("personal/personal_fading_server", 180), ("reuse", 1)],
)
def test_reduced_results_keep_the_round_of_divergence(name: str, diverged: int) -> None:
    with xr.open_dataset(REFERENCE / f"{name}.nc") as result:
        assert int(result["diverged_round"].notnull().sum()) == diverged
