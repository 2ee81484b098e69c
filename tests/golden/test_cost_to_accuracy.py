"""`scripts/cost_to_accuracy.py` on a small sweep whose numbers were put in by hand.

Mutations that make a test here fail: means over all trials with 0 for those that never got there;
a point's label of a joint axis' number; rows in another order than their labels; one cause for all;
radiated joules for drawn ones; the highest value of the last record alone; a figure without the
joules, or against the round.
"""

from __future__ import annotations

import csv
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from contract.small import tree
from matplotlib.image import imread

import otafl
from otafl.analysis.overhead import select_soonest
from otafl.devices.activities import CAUSES

SCRIPTS = Path(__file__).parents[2] / "scripts"
ROUNDS = np.array([0.0, 1.0, 2.0, 4.0])
ACCURACY = np.array(
    [
        [[0.1, 0.7, 0.8, 0.7], [0.1, 0.2, 0.3, 0.9]],  # there at round 2, and at 4
        [[0.1, 0.5, 0.6, 0.4], [0.1, 0.1, 0.3, 0.2]],  # never
    ]
)
EACH = np.broadcast_to(ROUNDS, (2, 2, 4))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep over pairs of policy and SNR, with the records of `ACCURACY` in place of its own."""
    keys = {
        "training.rounds": 1,
        "trials": 2,
        "devices.count": 2,
        "sweep": {"zip": [{"power": "ci", "channel.snr_db": 5}, {"power": "gbma"}]},
    }
    keys["sweep"]["zip"][1]["channel.snr_db"] = 10
    ds = otafl.run(tree(keys))
    dims = ("zip", "trial", "round")
    ds = ds.drop_dims(["round", "cause"], errors="ignore").assign_coords(
        round=ROUNDS, cause=list(CAUSES), final_round=("zip", [4.0, 4.0])
    )
    about = {"long_name": "test accuracy of the global model"}
    ds["test_accuracy"] = (dims, ACCURACY, about)
    for name, factor in {"sim_time_s": 3.0, "airtime_s": 0.5, "uplink_symbols": 100.0}.items():
        ds[name] = (dims, EACH * factor)
    ds["side_symbols"], ds["participants"] = (dims, EACH * 7.0), (dims, np.full((2, 2, 4), 2.0))
    joules = np.stack([EACH, EACH * 2.0], -1)
    ds["tx_energy_j"] = ((*dims, "device"), joules)
    causes = joules[..., None] * np.arange(1.0, 1 + len(CAUSES))
    ds["device_energy_j"] = ((*dims, "device", "cause"), causes)
    path = tmp_path_factory.mktemp("cost") / "result.nc"
    ds.to_netcdf(path, engine="h5netcdf")
    return path


def call(monkeypatch: pytest.MonkeyPatch, *args: object) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", ["cost_to_accuracy.py", *map(str, args)])
    runpy.run_path(str(SCRIPTS / "cost_to_accuracy.py"), run_name="__main__")


def tables(told: str) -> list[dict[str, str]]:
    """A row each: title of the column -> cell."""
    rows, head = [], []
    for line in told.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| point"):
            head = cells
        elif line.startswith("| "):
            rows.append(dict(zip(head, cells, strict=True)))
    return rows


def test_costs_of_each_point(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Rounds 2 and 4: 3 ± 1.41; two devices of 1 and 2 joules a round, times 1 to 5 by cause."""
    call(monkeypatch, ran, "--target", 0.8)
    told = capsys.readouterr().out
    assert "test accuracy of the global model at or above 0.8" in told
    effort, never, joules, _ = tables(told)
    assert effort == {
        "point": "ci, 5",
        "trials": "2 of 2",
        "best": "0.8500",
        "rounds": "3.0 ± 1.4",
        "seconds": "9.0 ± 4.2",
        "airtime, s": "1.50 ± 0.71",
        "airtime x bandwidth, Hz s": "1.5e+06 ± 707107",
        "symbols": "300.0 ± 141",
        "side symbols": "21.0 ± 9.9",
        "symbols x devices": "600.0 ± 283",
    }
    assert never["point"] == "gbma, 10"
    assert (never["trials"], never["best"], never["rounds"]) == ("0 of 2", "0.4500", "-")
    drawn = ("9.0 ± 4.2", "18.0 ± 8.5", "27 ± 13", "36 ± 17", "45 ± 21")
    assert tuple(joules[cause] for cause in CAUSES) == drawn
    assert (joules["all causes"], joules["radiated"]) == ("135 ± 64", "9.0 ± 4.2")


def test_files(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    call(monkeypatch, ran, "--csv", tmp_path / "c.csv", "--out", tmp_path / "c.png")
    assert f"figure: {tmp_path / 'c.png'}" in capsys.readouterr().out
    assert imread(tmp_path / "c.png").shape[1] == 1760  # two panels
    with (tmp_path / "c.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["point"], r["trial"], r["round"]) for r in rows] == [
        *(("ci, 5", "0", "2.0"), ("ci, 5", "1", "4.0")),
        *(("gbma, 10", "0", ""), ("gbma, 10", "1", "")),
    ]
    assert float(rows[1]["energy_j"]) == 4 * 3 * 15
    assert float(rows[1]["cause_idle"]) == 4 * 3 * 5


def test_nobody_gets_there_and_little_is_known(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    """A result without axes, as it was before the clock told causes apart."""
    ds = xr.open_dataset(ran, engine="h5netcdf").isel(zip=0).drop_vars(["device_energy_j", "cause"])
    ds["compute_energy_j"] = ds["tx_energy_j"] * 2.0
    ds.to_netcdf(tmp_path / "one.nc", engine="h5netcdf")
    call(monkeypatch, tmp_path / "one.nc", "--target", 0.95, "--out", tmp_path / "one.png")
    effort, joules = tables(capsys.readouterr().out)
    assert effort["point"] == ds.attrs["title"]
    assert {effort[name] for name in ("rounds", "seconds", "symbols")} == {"-"}
    same = {name: effort[name] for name in ("point", "trials", "best")}
    assert joules == {**same, "radiated": "-", "compute": "-"}
    assert imread(tmp_path / "one.png").shape[1] == 1040  # of the seconds alone
    call(monkeypatch, tmp_path / "one.nc", "--target", 0.8)
    _, joules = tables(capsys.readouterr().out)
    assert (joules["radiated"], joules["compute"]) == ("9.0 ± 4.2", "18.0 ± 8.5")


def test_an_unknown_variable_is_named(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as left:
        call(monkeypatch, ran, "--variable", "accuracy")
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("cost_to_accuracy.py: error: to_reach: 'accuracy' is not recorded")
    assert "test_accuracy" in error


def test_the_soonest_on_validation_data_is_kept(ran: Path) -> None:
    """Targets less a hundredth: the second value is there first, though a trial of the first has
    the higher end; of two that never get there, the first."""
    ds = xr.open_dataset(ran, engine="h5netcdf").load()
    slow, fast = ds["test_accuracy"].values * 0.5, np.full((2, 2, 4), 0.795)
    slow[0, :, 3] = 0.9
    fast[0, :, 0] = fast[1] = 0.1
    values = np.stack([slow, fast], 1)
    dims = ("zip", "learning_rate", "trial", "round")
    grown = ds.expand_dims(learning_rate=[0.1, 0.3]).assign(validation_accuracy=(dims, values))
    best = select_soonest(grown.assign_coords(final_round=ds["final_round"]), "learning_rate", 0.8)
    assert best["learning_rate"].values.tolist() == [0.3, 0.1]
    assert "learning_rate" not in best.dims
    # at rounds 0 and 4, and both at 2: equal in the mean, where the first is kept
    values[1, 0, 0], values[1, 0, 1, 3], values[1, 1, :, 2] = 0.8, 0.8, 0.8
    again = grown.assign(validation_accuracy=(dims, values))
    again = select_soonest(again.assign_coords(final_round=ds["final_round"]), "learning_rate", 0.8)
    assert again["learning_rate"].values.tolist() == [0.3, 0.1]
    with pytest.raises(otafl.UserError, match=r"soonest: 'lr' is no axis of this result"):
        select_soonest(grown, "lr", 0.8)
