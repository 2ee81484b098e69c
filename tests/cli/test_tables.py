"""`otafl table` and `otafl compare` on results whose numbers were put in by hand."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from golden.made_results import made, written

from otafl import cli
from otafl.analysis.paired import compare_pairs
from otafl.analysis.summary import format_mean_std
from otafl.analysis.tables import build_grid, find_best
from otafl.scenario import Point

SWEEP = {
    "channel.snr_db": [0, 10],
    "power.name": ["gbma", "ci", {"name": "tci", "threshold": 0.3}],
    "devices.count": [2, 4, 8],
}


def accuracy(point: Point, trial: int, round: int) -> float:
    """Trials differ by a wide noise that all points share, and a narrow one of each; ci is better
    by 0.1 at 10 dB, tci never."""
    if round < 4:
        return 0.0
    own = np.random.default_rng([point.index, trial]).normal(0, 0.002)
    name, snr = point.scenario.power.name, point.scenario.channel.snr_db
    better = 0.1 * (name == "ci" and snr == 10)
    if name == "gbma" and snr == 10 and trial == 0:  # a slope of its own
        better = -0.01 * point.scenario.devices.count
    return 0.5 + better + 0.02 * trial + own + 0.01 * point.scenario.devices.count


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ds = made(SWEEP, accuracy, trials=5)
    # an error that falls as 1 / K^2, and what is no number: a trial that diverged
    counts = ds["device_count"].values[None, None, :, None, None]
    ds["aggregation_nmse"] = ds["test_accuracy"].copy(data=np.ones((2, 3, 3, 5, 3)) / counts**2)
    ds["test_accuracy"].loc[{"snr_db": 0, "power": "gbma", "device_count": 2, "trial": 1}] = np.nan
    return written(ds, tmp_path_factory.mktemp("scripts") / "r.nc")


@pytest.fixture
def ends(ran: Path) -> xr.DataArray:
    with xr.open_dataset(ran, engine="h5netcdf") as ds:
        return ds["test_accuracy"].isel(round=-1).load()


def call(*args: object, code: int = 0) -> None:
    """A command in this process; it must end with the exit code."""
    with pytest.raises(SystemExit) as left:
        cli.main(list(map(str, args)))
    assert (left.value.code or 0) == code


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_table_prints_means_deviations_and_n(
    ran: Path, ends: xr.DataArray, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    call("table", ran)
    told = capsys.readouterr().out
    assert told.startswith(
        "Test accuracy of the global model at the end, mean ± standard deviation"
    )
    assert "over n = 5 trials, or fewer where a cell states n" in told
    (head,) = [line for line in told.splitlines() if line.startswith("power")]
    assert re.split(" {2,}", head) == ["power", "device count", "0 dB", "10 dB"]
    for power, count in (("ci", 4), ("gbma", 2)):
        (row,) = [line for line in told.splitlines() if re.match(rf"{power} +{count} ", line)]
        at = ends.sel(power=power, device_count=count)
        expected = [format_mean_std(at.sel(snr_db=snr).values) for snr in (0, 10)]
        expected[0] += " (n = 4)" * (count == 2)
        assert re.split(" {2,}", row) == [power, str(count), *expected]
    table = tmp_path / "t.csv"
    call("table", ran, "--columns", "snr_db", "--out", table)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 18
    (row,) = [r for r in rows if list(r.values())[:3] == ["gbma", "2", "0"]]
    at = ends.sel(power="gbma", device_count=2, snr_db=0)
    assert float(row["mean"]) == pytest.approx(at.mean().item())
    assert float(row["std"]) == pytest.approx(at.std(ddof=1).item())
    assert (row["n"], row["variable"], row["units"]) == ("4", "test_accuracy", "1")
    capsys.readouterr()
    chosen = ("--sel", "device_count=4", "--best", "column", "--format", "markdown")
    call("table", ran, "--columns", "snr_db", *chosen)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ci")]
    assert [cell.startswith("**") for cell in cells(rows[0])[1:]] == [False, True]


def test_table_of_several_variables_and_slices(ran: Path, capsys: pytest.CaptureFixture) -> None:
    names = "test_accuracy,aggregation_nmse,tx_energy_j"
    slices = ("--sel", "power=ci", "--sel", "power=gbma", "--sel", "snr_db=10")
    call("table", ran, "--variables", names, *slices, "--format", "markdown", "--best", "column")
    told = capsys.readouterr().out
    assert "Test accuracy of the global model" in told
    assert "energy radiated [J] at the end" in told
    lines = [cells(line) for line in told.splitlines() if line.startswith("|")]
    units = ["test accuracy", "aggregation nmse", "tx energy [J]"]
    assert lines[0] == ["power", "device count", *units]
    assert [line[:2] for line in lines[2:]] == [
        [power, str(count)] for power in ("gbma", "ci") for count in (2, 4, 8)
    ]
    # the largest accuracy, the least error and energy, each of its own column
    assert lines[7][2].startswith("**0.7")
    assert lines[4][3] == "**0.01562 ± 0**"
    assert lines[2][4] == "**801.0 ± 0**"
    assert sum(cell.startswith("**") for line in lines for cell in line) == 3


def test_table_with_names_of_ones_own(ran: Path, capsys: pytest.CaptureFixture) -> None:
    own = ("--label", "tci(threshold=0.3)=truncated", "--label", "power=control")
    call("table", ran, *own, "--label", "test_accuracy=accuracy", "--sel", "device_count=4")
    told = capsys.readouterr().out
    assert told.startswith("Accuracy at the end, mean")
    assert re.search("^control +0 dB +10 dB$", told, re.MULTILINE)
    assert re.search("^truncated +0.5", told, re.MULTILINE)
    names = ("--variables", "test_accuracy,tx_energy_j", "--label", "tx_energy_j=radiated (J)")
    call("table", ran, *names, "--format", "markdown")
    assert "| test accuracy | radiated (J) |" in capsys.readouterr().out
    call("table", ran, "--label", "gmba=x", code=2)
    assert "--label gmba: not in this result; did you mean 'gbma'?" in capsys.readouterr().err


def test_compare_tests_the_values_of_an_axis(
    ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    base = ("--axis", "power", "--baseline", "tci(threshold=0.3)")
    call("compare", ran, *base, "--format", "markdown")
    told = capsys.readouterr().out
    assert "from power tci(threshold=0.3), mean over n pairs of trials" in told
    rows = {tuple(row[:3]): row[3:] for row in map(cells, told.splitlines()) if len(row) == 7}
    assert len(rows) == 2 + 12
    with xr.open_dataset(ran, engine="h5netcdf") as ds:
        tests = compare_pairs(ds.load(), "test_accuracy", "power", "tci(threshold=0.3)")
    one = tests.sel(snr_db=10, power="ci", device_count=4)
    difference, interval, p, pairs = rows["10 dB", "ci", "4"]
    assert float(difference) == pytest.approx(float(one["difference"]), rel=1e-2)
    assert 0.09 < float(difference) < 0.11
    low, high = map(float, interval.split(" to "))
    assert 0.08 < low < float(difference) < high < 0.12
    assert float(p) == pytest.approx(float(one["p_holm"]), rel=1e-2)
    assert float(one["p"]) < float(p) < 0.01
    assert pairs == "5"
    assert rows["0 dB", "gbma", "2"][3] == "4, 1 lost"
    assert float(rows["0 dB", "gbma", "4"][2]) > 0.05
    call("compare", ran, *base, "--out", tmp_path / "t.csv")
    with (tmp_path / "t.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 12
    (line,) = [r for r in lines if list(r.values())[:3] == ["10", "ci", "4"]]
    assert float(line["difference"]) == pytest.approx(float(one["difference"]))
    assert float(line["p_holm"]) == pytest.approx(float(one["p_holm"]))


def test_compare_two_results(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """OTHER - RESULT at equal values of their axes, whatever their order."""
    sweeps = ({"channel.snr_db": [0, 10]}, {"channel.snr_db": [10, 20, 0]})
    paths = [
        written(made(sweep, accuracy, trials=5, power=power), tmp_path / f"{power}.nc")
        for sweep, power in zip(sweeps, ("gbma", "ci"), strict=True)
    ]
    call("compare", *paths)
    told = capsys.readouterr().out
    assert f"from {paths[0]} to {paths[1]}" in told
    lines = [line.split() for line in told.splitlines()[3:]]
    assert [line[0] for line in lines] == ["0", "10"]
    assert abs(float(lines[0][2])) < 0.01
    assert float(lines[1][2]) == pytest.approx(0.12, abs=0.02)  # 0.1, and gbma's -0.02 / 5 = 0.004
    alone = written(
        made(None, accuracy, trials=5, power="ci", channel={"snr_db": 10}), tmp_path / "one.nc"
    )
    call("compare", paths[0], alone, code=2)
    assert "expected the same axes, got snr_db and no axis" in capsys.readouterr().err
    seed = written(made(sweeps[0], accuracy, seed=7), tmp_path / "seed.nc")
    call("compare", paths[0], seed, code=2)
    assert "expected results of one seed" in capsys.readouterr().err
    far = written(made({"channel.snr_db": [1, 2]}, accuracy), tmp_path / "far.nc")
    call("compare", paths[0], far, code=2)
    assert "no point and trial is in both results" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["table", "R", "--columns", "power"], "power: this result has no sweep"),
        (["table", "R", "--best", "rows"], "rows: not row, column or a coordinate"),
        (["table", "R", "--sel", "power"], "--sel power: must be of the form dim=value"),
        (["table", "R", "--variables", "acuracy"], "acuracy: not a variable of this result"),
        (["table", "R", "--out", "t.doc"], "--out t.doc: expected a name that ends in .txt"),
        (["table", "R", "--level", "5"], "--level 5: must be above 0 and below 1, like 0.05"),
        (["table", "R", "--target", "x"], "--target x: expected a number or VARIABLE=NUMBER"),
        (["table", "R", "--tune", "lr"], "tuned: the result has no 'lr'"),
        (["compare", "R"], "expected an axis or a second result; the result has no sweep"),
        (["compare", "R", "R", "--axis", "power"], "--axis power: two results are compared"),
        (["compare", "R", "--label", "ci"], "--label ci: must be of the form name=text"),
    ],
)
def test_bad_input_is_one_sentence(
    args: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = written(made(), tmp_path / "r.nc")
    call(*(str(path) if arg == "R" else arg for arg in args), code=2)
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.startswith("otafl: error: ")
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_diverged_trials_are_stated(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    ds = made({"power": ["gbma", "ci"]}, accuracy)
    lost = np.full((2, 3), np.nan)
    lost[1, 2] = 2
    ds["diverged_round"] = (("power", "trial"), lost, {"units": "round", "long_name": "diverged"})
    path = written(ds, tmp_path / "r.nc")
    call("table", path)
    assert "1 of 6 trials diverged in round" in capsys.readouterr().out
    call("compare", path)
    assert "1 of 6 trials diverged in round" in capsys.readouterr().err


def rows_of(text: str) -> list[list[str]]:
    r"""The cells of the lines of a LaTeX table that end with \\."""
    lines = [line.strip() for line in text.splitlines()]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)&", line[:-2])]
        for line in lines
        if line.endswith("\\\\")
    ]


def test_latex_is_well_formed(ran: Path, ends: xr.DataArray, tmp_path: Path) -> None:
    out = tmp_path / "t.tex"
    across = ("--columns", "snr_db,device_count")
    call("table", ran, *across, "--best", "column", "--out", out)
    text = out.read_text()
    assert text.count("{") == text.count("}")
    begun = re.findall(r"\\begin\{(\w+)\}", text)
    assert begun == re.findall(r"\\end\{(\w+)\}", text)[::-1] == ["table", "tabular"]
    rules = [text.index(f"\\{rule}rule") for rule in ("top", "mid", "bottom")]
    assert rules == sorted(rules)
    assert r"\begin{tabular}{lrrrrrr}" in text
    assert "over n = 5 trials, or fewer where" in text
    assert not re.search(r"(?<!\\)[_%#]", text)
    heads, *body = rows_of(text)
    assert heads == [
        "power",
        *(f"{snr} dB, device count {n}" for snr in (0, 10) for n in (2, 4, 8)),
    ]
    assert [row[0] for row in body] == ["gbma", "ci", "tci(threshold=0.3)"]
    assert {len(row) for row in body} == {7}
    # bold is the largest mean of each column
    for j, cell in enumerate(zip(*(row[1:] for row in body), strict=True)):
        column = ends.isel(snr_db=j // 3, device_count=j % 3).mean("trial")
        assert [one.startswith(r"$\mathbf{") for one in cell] == list(column == column.max())
        for one, mean in zip(cell, column.values, strict=True):
            assert float(re.search(r"[\d.]+", one)[0]) == pytest.approx(mean, abs=1e-3)


def test_the_best_may_have_to_be_significant(ran: Path) -> None:
    """At 10 dB ci is best by 0.1, which five trials tell; at 0 dB somebody is by chance."""
    with xr.open_dataset(ran, engine="h5netcdf") as ds:
        table = build_grid(ds.load(), "test_accuracy", ["snr_db"])
    marked = find_best(table, "power")
    assert marked.sum() == 6
    sure = find_best(table, "power", level=0.05)
    ci = [row[0] == "ci" for row in table.rows]
    np.testing.assert_array_equal(sure[:, 1], ci)
    assert sure[:, 0].sum() < 3
    few = find_best(
        build_grid(ds.isel(trial=[0, 2]), "test_accuracy", ["snr_db"]), "power", level=0.05
    )
    assert not few.any()
