"""Committed results come out again: a point of each cheap one, to single precision.

`studies/common/repeat.py` measures what each takes and whether it repeats (`repeats.csv`). A result
without a row there is repeated here too, so a new one is tested before anybody lists it.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

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
