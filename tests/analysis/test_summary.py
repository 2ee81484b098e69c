"""What `otafl show` prints: columns, and the same numbers as `table` and `report`."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import xarray as xr
from contract.small import scenario
from rich.console import Console

from otafl import sweeping
from otafl.analysis.summary import format_mean_std, print_ends
from otafl.analysis.tables import build_grid, build_text_table
from otafl.report.tables import MAX_ROWS, build_value_tables

pytestmark = pytest.mark.exact

REGRESSION = {
    "data": {"name": "ridge", "users": 4, "user_samples": 20},
    "model": "linear",
    "loss": "squared",
}


def shown(ds: xr.Dataset, width: int = 80, **keys: Any) -> list[str]:
    """Lines of the table and its notes."""
    console = Console(width=width, file=io.StringIO(), markup=False)
    print_ends(ds, console, **keys)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def first_title(lines: list[str], columns: int = 0) -> str:
    """Return the head of the column after so many coordinates, in one line."""
    rule = next(i for i, line in enumerate(lines) if line.startswith("───"))
    heads = [line for line in lines[:rule] if line.strip()]
    return " ".join(heads[-1].split()[columns : columns + 2])


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_metric_of_the_loss_is_the_first_column(width: int) -> None:
    few = {"training.rounds": 1}
    assert first_title(shown(sweeping.run(scenario(REGRESSION | few)), width))[:8] == "test mse"
    sweep = {"sweep": {"power": ["gbma", "ci"], "channel.snr_db": [0, 10]}}
    lines = shown(sweeping.run(scenario(few | sweep)), width)
    assert "accuracy" in " ".join(lines[:5])
    cells = next(line for line in lines if line.startswith("gbma")).split()
    assert 0 < float(cells[2]) < 1  # after power and SNR


def test_show_table_and_report_agree_on_a_diverged_trial() -> None:
    ds = sweeping.run(scenario({"training.rounds": 2, "power": "gbma"})).copy(deep=True)
    ds["diverged_round"][0] = 1.0
    ds["airtime_s"][:, -1] = [1.0, 2.0, 9.0]
    names = ["test_accuracy", "airtime_s", "tx_energy_j"]
    lines = shown(ds, 200, variables=names)
    rule = next(i for i, line in enumerate(lines) if line.startswith("───"))
    cells = lines[rule + 1]
    grid = build_grid(ds, names)
    texts = build_text_table(grid).rows[0]
    assert "5.5 ± 4.9 (n = 2)" in texts
    page = {row[0]: row[1] for one in build_value_tables(ds) for row in one.table.rows}
    for text in texts:
        assert text in cells
        assert text in page.values()
    notes = " ".join(lines[rule + 2 :])
    assert "final round 2" in notes
    assert "1 of 3 trials diverged in round 1" in notes
    np.testing.assert_allclose(grid.values[0, 1], [np.nan, 2.0, 9.0])


def test_a_page_shows_the_first_rows_of_many_and_counts_the_others() -> None:
    swept = {"channel.snr_db": list(range(-2, MAX_ROWS))}
    ds = sweeping.run(scenario({"training.rounds": 1, "trials": 1, "sweep": swept}))
    for one in build_value_tables(ds):
        assert [row[0] for row in one.table.rows] == [f"{n} dB" for n in range(-2, MAX_ROWS - 2)]
        assert one.left_out == 2


def test_a_skewed_airtime_has_its_median_beside_its_mean() -> None:
    ds = sweeping.run(scenario({"training.rounds": 1})).copy(deep=True)
    assert "median" not in " ".join(shown(ds, 200))
    ds["airtime_s"][:, -1] = [1.0, 2.0, 9.0]
    lines = shown(ds, 200, variables=["airtime_s"])
    assert "median" in " ".join(lines)
    assert next(line for line in lines if "±" in line).split() == ["4.0", "±", "4.4", "2.000"]


@pytest.mark.parametrize(("width", "tables"), [(40, 2), (200, 1)])
def test_variables_that_are_asked_for_have_as_many_tables_as_they_need(
    width: int, tables: int
) -> None:
    names = ["test_loss", "train_loss", "test_accuracy"]
    ds = sweeping.run(scenario({"training.rounds": 1, "sweep": {"channel.snr_db": [0, 10]}}))
    lines = shown(ds, width, variables=names)
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line.split()[:1] == ["10"]]
    assert len(rows) == tables
    for name in names:
        values = ds[name].sel(snr_db=10).isel(round=-1).values
        assert sum(format_mean_std(values) in row for row in rows) == 1
    assert "no room" not in " ".join(lines)
