"""`otafl table --target` on a small sweep whose numbers were put in by hand."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from contract.small import tree

import otafl
from otafl import cli
from otafl.cli import tables
from otafl.devices.hardware import CAUSES

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


def call(*args: object, code: int = 0) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["table", *map(str, args)])
    assert left.value.code == code


def read_rows(text: str) -> list[dict[str, str]]:
    """A row each: title of the column -> cell."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def test_costs_of_each_point(ran: Path, capsys: pytest.CaptureFixture) -> None:
    """Rounds 2 and 4: 3 ± 1.41; two devices of 1 and 2 joules a round, times 1 to 5 by cause."""
    call(ran, "--target", 0.8, "--format", "markdown")
    told = capsys.readouterr().out
    assert "when test_accuracy reached 0.8, mean ± standard deviation over n = 2 trials" in told
    first, never = read_rows(told)
    assert first == {
        "power": "ci",
        "snr db": "5 dB",
        "reached": "1.000 ± 0",
        "best": "0.850 ± 0.071",
        "rounds": "3.0 ± 1.4",
        "sim time s": "9.0 ± 4.2",
        "airtime s": "1.50 ± 0.71",
        "uplink symbols": "300.0 ± 141",
        "energy [J]": "135 ± 64",
        "tx energy j": "9.0 ± 4.2",
    }
    assert (never["power"], never["reached"], never["best"]) == ("gbma", "0 ± 0", "0.45 ± 0.21")
    assert (never["rounds"], never["energy [J]"]) == ("-", "-")
    more = ("side_symbols", *(f"{one}_j" for one in CAUSES))
    call(ran, "--target", 0.8, "--format", "markdown", "--variables", ",".join(more))
    first, _ = read_rows(capsys.readouterr().out)
    assert list(first.values())[2:] == [
        *("21.0 ± 9.9", "9.0 ± 4.2", "18.0 ± 8.5", "27 ± 13", "36 ± 17", "45 ± 21"),
    ]


def test_a_csv_file_has_a_line_a_cell(
    ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    call(
        ran, "--target", "test_accuracy=0.85", "--variables", "rounds", "--out", tmp_path / "c.csv"
    )
    assert capsys.readouterr().out == f"{tmp_path / 'c.csv'}\n"
    with (tmp_path / "c.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {
        "power": "ci",
        "snr_db": "5",
        "variable": "rounds",
        "units": "round",
        "mean": "4.0",
        "std": "",
        "n": "1",
    }
    assert [row["n"] for row in rows] == ["1", "0"]


def test_the_step_is_tuned_first(ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    ds = xr.open_dataset(ran, engine="h5netcdf").load()
    grown = ds.isel(zip=[0]).expand_dims(learning_rate=[0.1, 0.3])
    values = grown["test_accuracy"].copy()
    values[0] = 0.1
    grown = grown.assign(validation_accuracy=values, test_accuracy=values)
    grown = grown.assign_coords(
        final_round=grown["final_round"].max() + 0 * values.isel(trial=0, round=0, drop=True)
    )
    grid = tables._build_grid(grown, ["rounds"], [], ("0.8", "learning_rate"), True)
    assert [name for name, _ in grid.variables] == ["rounds", "learning_rate"]
    np.testing.assert_array_equal(grid.values[0], [[2, 4], [0.3, 0.3]])
    grid = tables._build_grid(grown, [], [], (None, "learning_rate"), True)
    assert grid.values[0, 1].tolist() == [0.3, 0.3]
