"""The committed pages say what their scripts print of the committed results.

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
        ("reproduce_pfedbred", "pfedbred", "personal", ["--figures", "{}"], 2, 70),
        ("prior_or_step", "pfedbred", "personal", ["--figure", "{}/pfedbred.png"], 1, 8),
        ("reproduce_tdpfed", "tdpfed", "personal", ["--figure", "{}/tdpfed.png"], 1, 10),
        (
            "tdpfed_conv",
            "tdpfed",
            "personal",
            ["--figure", "{}/tdpfed_conv.png"],
            1,
            18,
        ),
        (
            "personal_over_fading",
            "personal_fading",
            "personal",
            ["--figure", "{}/personal_fading.png"],
            1,
            20,
        ),
        (
            "personal_small_data",
            "personal",
            "personal",
            ["--figure", "{}/personal_small_data.png"],
            1,
            15,
        ),
        ("cost_by_axis", "time_and_energy", "cost_to_accuracy.nc", [], 0, 24),
        ("laser", "laser", "laser_figure.nc", ["--figure", "{}/laser.png"], 1, 17),
        ("reuse", "reuse", "reuse.nc", ["--figure", "{}/reuse.png"], 1, 31),
        ("theory", "theory", "", ["--figure", "{}/theory.png"], 1, 50),
        ("natural_people", "natural_people", "", ["--figure", "{}/natural_people.png"], 1, 35),
        ("fading_text", "fading_text", "", ["--figure", "{}/fading_text.png"], 1, 40),
        ("robust", "robust", "robust.nc", ["--figure", "{}/robust.png"], 1, 139),
        (
            "rank_by_channel",
            "rank_by_channel",
            "rank_by_channel.nc",
            ["--figure", "{}/rank_by_channel.png"],
            1,
            50,
        ),
        ("reproduce_fedhm", "fedhm", "sizes", ["--figure", "{}/fedhm.png"], 1, 40),
        ("fedhm_fair", "fedhm_fair", "sizes", ["--figure", "{}/fedhm_fair.png"], 1, 19),
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


@pytest.mark.slow
def test_what_act_loses_on_the_papers_kernels() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "act_sweeps.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = (ROOT / "results" / "tdpfed.md").read_text().splitlines()
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == 7
    assert [row for row in rows if row not in told] == []


@pytest.mark.parametrize(
    ("name", "diverged"),
    [("personal/personal_fading", 2050), ("personal/personal_fading_server", 180), ("reuse", 1)],
)
def test_reduced_results_keep_the_round_of_divergence(name: str, diverged: int) -> None:
    with xr.open_dataset(REFERENCE / f"{name}.nc") as result:
        assert int(result["diverged_round"].notnull().sum()) == diverged
