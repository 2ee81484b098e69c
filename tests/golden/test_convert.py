"""`otafl convert`, and `otafl show` of many points."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from golden.made_results import made, written
from support.command import call

from otafl import open_results
from otafl.core.errors import UserError
from otafl.results import files
from otafl.results.conversion import convert

SWEEP = {
    "zip": [
        {"power": "gbma", "devices.count": 2},
        {"power": {"name": "tci", "threshold": 0.3}, "devices.count": 3},
    ],
    "channel.snr_db": [0, 10.5],
}


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A joint axis with text, devices that one point has not, a round that another has not."""
    ds = made(SWEEP)
    ds["test_accuracy"][:, 1, :, 2] = np.nan
    ds["tx_energy_j"][:, 1, :, 2] = np.nan
    ds["wall_time_s"][:, 1, :, 2] = np.nan
    ds["final_round"][:, 1] = 2.0
    return written(ds, tmp_path / "r.nc")


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_all_comes_back(
    ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Also of a result that is read from disk part by part."""
    if suffix == ".zarr":
        pytest.importorskip("zarr")
    monkeypatch.setattr(files, "LAZY_ABOVE_BYTES", 0)
    out = tmp_path / "new" / f"o{suffix}"
    assert convert(ran, out) == []
    back = xr.open_zarr(out) if suffix == ".zarr" else open_results(out)
    xr.testing.assert_identical(back.load(), open_results(ran).load())
    assert back["power"].values.tolist() == ["gbma", "tci(threshold=0.3)"]
    assert back.attrs["scenario"] == open_results(ran).attrs["scenario"]
    own = {out.name, f"{out.name}.sha256"} if out.suffix == ".nc" else {out.name}
    assert {p.name for p in out.parent.iterdir()} == own


def test_csv_has_a_line_for_each_point_trial_and_round(ran: Path, tmp_path: Path) -> None:
    (told,) = convert(ran, tmp_path / "o.csv")
    assert told.startswith("tx_energy_j: with other dims, not written")
    with (tmp_path / "o.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * 3 + 2 * 3 * 2  # without the round that one SNR has not
    head = list(rows[0])
    assert head[:4] == ["zip", "snr_db", "trial", "round"]
    assert {*head[4:6]} == {"power", "device_count"}
    ds = open_results(ran)
    for row in rows:
        at = {"zip": int(row["zip"]), "trial": int(row["trial"]), "round": int(row["round"])}
        one = ds["test_accuracy"].sel(at | {"snr_db": float(row["snr_db"])})
        assert float(row["test_accuracy"]) == float(one)
        assert row["power"] == str(one["power"].values)
        assert row["stop_round"] == ""


def test_csv_of_devices(ran: Path, tmp_path: Path) -> None:
    chosen = ["tx_energy_j", "test_accuracy"]
    assert convert(ran, tmp_path / "whole.csv", chosen) == []
    table = pd.read_csv(tmp_path / "whole.csv")
    ds = open_results(ran)
    assert len(table) == int(ds["test_accuracy"].notnull().sum()) * 3
    assert table["tx_energy_j"].notna().sum() == int(ds["tx_energy_j"].notnull().sum())
    assert table["tx_energy_j"].sum() == pytest.approx(float(ds["tx_energy_j"].sum()), rel=1e-9)


def test_what_is_there_is_kept(ran: Path, tmp_path: Path) -> None:
    for name in ("o.zarr", "o.nc", "o.csv"):
        (tmp_path / name).mkdir()
        with pytest.raises(UserError, match="is there already; remove it"):
            convert(ran, tmp_path / name)


def test_what_cannot_be_is_said(
    ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    for args, said in (
        ([ran, tmp_path / "o.parquet"], "must end in .zarr, .nc or .csv"),
        ([ran, ran], "is the result itself; give another name"),
        ([ran, tmp_path / "o.csv", "--variables", "test_acuracy"], "did you mean 'test_accuracy'"),
        ([tmp_path / "nowhere", tmp_path / "o.csv"], "no such file"),
        ([ran, ran / "o.csv"], "cannot be written"),
    ):
        call("convert", *args, code=2)
        assert said in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(UserError, match=r"pip install 'otafl\[zarr\]'"):
        convert(ran, tmp_path / "o.zarr")


@pytest.mark.slow
def test_show_of_many_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    ds = made({"channel.snr_db": list(range(70))}, trials=2)
    path = written(ds, tmp_path / "r.nc")
    monkeypatch.setenv("COLUMNS", "80")
    call("show", path)
    told = capsys.readouterr().out
    first = [line.split()[0] for line in told.splitlines() if re.match(r" *\d+ .*±", line)]
    assert first == [*map(str, range(20)), *map(str, range(65, 70))]
    assert "45 points between are not shown; otafl show --all shows them" in told
    monkeypatch.setenv("COLUMNS", "40")
    call("show", path, "--all")
    told = capsys.readouterr().out
    assert len([line for line in told.splitlines() if re.match(r" *\d+ .*±", line)]) == 70
    assert "not shown" not in told
