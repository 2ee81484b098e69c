"""Tables, figures and reports say which points hold which kind of power budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from support.command import call

import otafl
from otafl.analysis.cautions import describe_mixed_budgets
from otafl.analysis.summary import print_ends
from otafl.plots import curve_data
from otafl.report import list_notices
from otafl.scenario.notes import KINDS

pytestmark = pytest.mark.exact

SAID = "power budgets differ: tci on average over fading, others in every round"


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    keys: dict[str, Any] = {
        "name": "budgets",
        "data": {"name": "ridge", "users": 4, "user_samples": 20},
        "model": "linear",
        "devices": {"count": 4},
        "training": {"rounds": 1},
        "trials": 2,
        "sweep": {
            "channel.snr_db": [0, 10],
            "power": ["gbma", {"name": "tci", "constraint": "peak"}, "tci"],
        },
    }
    return otafl.run(keys)


def test_only_what_is_shown_counts(result: xr.Dataset) -> None:
    assert describe_mixed_budgets(result) == SAID
    assert not describe_mixed_budgets(result.isel(power=slice(2)))
    assert not describe_mixed_budgets(result.sel(power="tci"))
    assert not describe_mixed_budgets(result.drop_vars("power_constraint"))
    absent = result.copy(deep=True)
    for number in (np.nan, 7.0, np.inf):  # of an unfinished sweep, and of another program
        absent["power_constraint"][:, 2] = number
        assert not describe_mixed_budgets(absent), number


def test_numbers_are_named(result: xr.Dataset) -> None:
    mixed = result.sel(power="gbma").copy(deep=True)
    mixed["power_constraint"][{"snr_db": 1}] = KINDS.index("average")
    said = describe_mixed_budgets(mixed)
    assert said == "power budgets differ: snr_db=10 on average over fading, others in every round"


def test_tables_figures_and_reports_say_it(
    result: xr.Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_ends(result)
    assert SAID in " ".join(capsys.readouterr().out.split())
    drawn = curve_data(result, "test_mse", "snr_db", hue="power")
    assert drawn.attrs["note"] == SAID
    assert f"{SAID.capitalize()}." in list_notices(result)
    path = tmp_path / "a.nc"
    result.to_netcdf(path)
    for command in (("table", path), ("compare", path, "--axis", "power")):
        call(*command)
        assert SAID in capsys.readouterr().err, command
