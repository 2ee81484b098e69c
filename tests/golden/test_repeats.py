"""Committed results come out again: a point of each cheap one, to single precision.

`studies/common/repeat.py` measures what each takes and whether it repeats (`repeats.csv`). A result
without a row there is repeated here too, so a new one is tested before anybody lists it.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from otafl.core.errors import UserError
from studies.common import repeat

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "studies"
FILES = {str(path.relative_to(FOLDER)): path for path in sorted(FOLDER.rglob("*.nc"))}
MAX_S = 1.0
"""Processor seconds of a result that is repeated here. The script repeats all."""
with (FOLDER / "repeats.csv").open(newline="") as file:
    ROWS = {row["file"]: row for row in csv.DictReader(file)}
CHEAP = [n for n, row in ROWS.items() if row["state"] == "equal" and float(row["seconds"]) <= MAX_S]
NAMES = [name for name in FILES if name in CHEAP or name not in ROWS]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_point_repeats(
    name: str, data_folder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = repeat.read_findings(FOLDER).get(name)
    if data_folder is not None:
        monkeypatch.setenv("OTAFL_DATA_DIR", data_folder)
    try:
        again = repeat.repeat(FILES[name], FOLDER, None if found is None else found.point)
    except UserError as error:
        if "otafl data get" not in str(error):
            raise
        pytest.skip("no folder of data sets here")
    assert again.state == "equal" or (again.state == "rounding" and found is None), again


def test_differences_are_found_in_any_common_round() -> None:
    stored = xr.Dataset(
        {"loss": ("round", [2.0, np.nan, 1.0]), "wall_time_s": ("round", [0.0, 1.0, 2.0])},
        {"round": [0, 5, 10]},
    )
    again = xr.Dataset({"loss": ("round", [2.0, 7.0, 1.5])}, {"round": [0, 5, 10]})
    assert repeat.find_first_round(stored) == 10
    assert repeat.compare(stored, again, 10) == {"loss": 0.25}
    assert repeat.compare(stored, again, 5) == {"loss": 0.0}


@pytest.mark.parametrize(
    ("gaps", "rounding", "state", "other"),
    [
        ({"loss": 1e-8, "energy_j": 1e-7}, {}, "equal", ""),
        ({"loss": 1e-3, "energy_j": 0.0}, {"loss": 2e-4}, "rounding", ""),
        ({"loss": 1e-3, "energy_j": 0.0}, {"loss": 1e-5}, "differs", ""),
        ({"loss": 1e-8, "energy_j": 0.1}, {"energy_j": 1e-9}, "equal", "energy_j"),
        ({"loss": 1e-3, "energy_j": 0.1}, {"energy_j": 1e-9}, "differs", ""),
    ],
)
def test_states(gaps: dict[str, float], rounding: dict[str, float], state: str, other: str) -> None:
    judged = repeat.judge(gaps, rounding)
    assert (judged["state"], judged["other"]) == (state, other)
