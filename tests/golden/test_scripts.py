"""The analysis scripts on results whose numbers were put in by hand.

Mutations that make a test here fail: cells of another row, the last record for the end of a trial,
a standard deviation with n, the baseline swapped, p not corrected, the best of a row for that of a
column, the largest error taken for the best, bold without significance, an unescaped underscore, a
column short, an exponent over means in another order, the first trial for their mean.
"""

from __future__ import annotations

import csv
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from golden.made_results import made, written
from matplotlib.image import imread

from otafl.analysis.paired import compare_pairs
from otafl.analysis.summary import format_mean_std
from otafl.analysis.tables import build_grid, find_best
from otafl.scenario import Point

SCRIPTS = Path(__file__).parents[2] / "scripts"
SWEEP = {
    "channel.snr_db": [0, 10],
    "power.name": ["gbma", "ci", {"name": "tci", "threshold": 0.3}],
    "devices.count": [2, 4, 8],
}
NAMES = ("compare_power", "cost_to_accuracy", "device_scaling", "latex_table", "snr_sweep")


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


def call(monkeypatch: pytest.MonkeyPatch, name: str, *args: object, code: int = 0) -> None:
    """A script in this process; it must end with the exit code."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, args)])
    left = None
    try:
        runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    except SystemExit as exit:
        left = exit.code
    assert (left or 0) == code


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("name", NAMES)
def test_each_is_short_and_explains_itself(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    text = (SCRIPTS / f"{name}.py").read_text()
    assert len(text.splitlines()) < 80
    assert f"python scripts/{name}.py" in text
    call(monkeypatch, name, "--help")
    told = capsys.readouterr().out
    assert f"python scripts/{name}.py" in told
    call(monkeypatch, name, "nowhere.nc", code=2)
    told = capsys.readouterr()
    assert told.err.startswith(f"{name}.py: error: nowhere.nc: no such file")
    assert told.out == ""


def test_snr_sweep(
    ran: Path,
    ends: xr.DataArray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    out, table = tmp_path / "f.png", tmp_path / "t.csv"
    call(monkeypatch, "snr_sweep", ran, "--out", out, "--csv", table)
    told = capsys.readouterr().out
    assert told.startswith(
        "Test accuracy of the global model at the end, mean ± standard deviation"
    )
    assert "over 5 trials; 1 of the values are missing or diverged" in told
    (head,) = [line for line in told.splitlines() if line.startswith("power")]
    assert re.split(" {2,}", head) == ["power", "device count", "0 dB", "10 dB"]
    for power, count in (("ci", 4), ("gbma", 2)):
        (row,) = [line for line in told.splitlines() if re.match(rf"{power} +{count} ", line)]
        at = ends.sel(power=power, device_count=count)
        expected = [format_mean_std(at.sel(snr_db=snr).values) for snr in (0, 10)]
        assert re.split(" {2,}", row) == [power, str(count), *expected]
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 18
    (row,) = [r for r in rows if list(r.values())[:3] == ["gbma", "2", "0 dB"]]
    at = ends.sel(power="gbma", device_count=2, snr_db=0)
    assert float(row["mean"]) == pytest.approx(at.mean().item())
    assert float(row["std"]) == pytest.approx(at.std(ddof=1).item())
    assert row["trials"] == "4"
    assert imread(out).shape[1] > 1500  # three panels
    arguments = [ran, "--sel", "device_count=4", "--markdown", "--variable", "test_accuracy"]
    call(monkeypatch, "snr_sweep", *arguments)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ci")]
    assert [cell.startswith("**") for cell in cells(rows[0])[1:]] == [False, True]


def test_device_scaling(
    ran: Path,
    ends: xr.DataArray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    out, table = tmp_path / "f.png", tmp_path / "t.csv"
    call(monkeypatch, "device_scaling", ran, "--out", out, "--csv", table)
    told = capsys.readouterr().out
    (block,) = [part for part in told.split("\n\n") if part.startswith("| devices")][3:4]
    assert told.index("10, gbma") < told.index(block) < told.index("10, ci")
    head, _, two, _, eight, growth = map(cells, block.splitlines())
    assert head == ["devices", "test_accuracy", "aggregation_nmse", "tx_energy_j [J]"]
    at = ends.sel(power="gbma", snr_db=10, device_count=2)
    assert two == ["2", format_mean_std(at.values), "0.2500 ± 0", "801.0 ± 0"]
    assert eight[2:] == ["0.01562 ± 0", "3228 ± 0"]
    means = ends.sel(power="gbma", snr_db=10).mean("trial")
    slope = np.polyfit(np.log([2, 4, 8]), np.log(means.values), 1)[0]
    assert float(growth[1]) == pytest.approx(slope, abs=0.006)
    assert growth[2:] == ["-2", "1.01"]  # 801, 1606, 3228 joules
    with table.open() as file:
        assert len(list(csv.DictReader(file))) == 6 * 3 * 5
    assert imread(out).shape[1] == 160 * (2 + 3 * 4.5)


def test_compare_power(
    ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    figure = ("--figure", tmp_path / "f.png")
    call(monkeypatch, "compare_power", ran, "--baseline", "tci(threshold=0.3)", *figure)
    told = capsys.readouterr().out
    assert "Differences from power tci(threshold=0.3), trial by trial" in told
    rows = {row[0]: row for row in map(cells, told.splitlines()) if len(row) == 7}
    assert len(rows) == 2 + 12
    with xr.open_dataset(ran, engine="h5netcdf") as ds:
        tests = compare_pairs(ds.load(), "test_accuracy", "power", "tci(threshold=0.3)")
    one = tests.sel(snr_db=10, power="ci", device_count=4)
    _, difference, interval, p, signed, pairs, times = rows["10, ci, 4"]
    assert float(difference) == pytest.approx(float(one["difference"]), rel=1e-2)
    assert 0.09 < float(difference) < 0.11
    low, high = map(float, interval.split(" to "))
    assert 0.08 < low < float(difference) < high < 0.12
    assert float(p) == pytest.approx(float(one["p_holm"]), rel=1e-2)
    assert float(one["p"]) < float(p) < 0.01
    assert (float(signed), pairs) == (2 / 2**5, "5")
    assert float(times) > 20
    assert rows["0, gbma, 2"][5] == "4, 1 lost"
    assert float(rows["0, gbma, 4"][3]) > 0.05
    assert imread(figure[1]).shape[1] > 1500
    call(monkeypatch, "compare_power", ran, "--axis", "device_count", "--baseline", 8, *figure)
    rows = [cells(line) for line in capsys.readouterr().out.splitlines() if "| 10, ci, 2 |" in line]
    assert float(rows[0][1]) == pytest.approx(-0.06, abs=0.01)


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("snr_sweep", [], "snr_db: this result has no sweep"),
        ("device_scaling", [], "device_count: this result has no sweep"),
        ("compare_power", [], "power: this result has no sweep"),
        ("compare_power", ["--variable", "x"], "this result has no sweep"),
        ("latex_table", ["--rows", "power"], "power: this result has no sweep"),
        ("latex_table", ["--best", "rows"], "rows: not row, column or a coordinate"),
        ("latex_table", ["--sel", "power"], "--sel power: must be of the form dim=value"),
        ("cost_to_accuracy", ["--tune", "learning_rate"], "'learning_rate' is no axis"),
    ],
)
def test_what_a_result_lacks_is_said(
    name: str,
    args: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    call(monkeypatch, name, written(made(), tmp_path / "r.nc"), *args, code=2)
    assert said in capsys.readouterr().err


def test_few_trials_tell_no_significance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    path = written(made({"power": ["gbma", "ci"]}, accuracy, trials=2), tmp_path / "r.nc")
    call(monkeypatch, "compare_power", path, "--figure", tmp_path / "f.png")
    told = capsys.readouterr().out
    assert "fewer than 3 pairs tell no significance" in told
    assert "| ci | " in told


def rows_of(text: str) -> list[list[str]]:
    r"""The cells of the lines of a LaTeX table that end with \\."""
    lines = [line.strip() for line in text.splitlines()]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)&", line[:-2])]
        for line in lines
        if line.endswith("\\\\")
    ]


def test_latex_is_well_formed(
    ran: Path, ends: xr.DataArray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "t.tex"
    across = ("--columns", "snr_db,device_count", "--label", "tab:x")
    call(monkeypatch, "latex_table", ran, *across, "--best", "column", "--out", out)
    text = out.read_text()
    assert text.count("{") == text.count("}")
    begun = re.findall(r"\\begin\{(\w+)\}", text)
    assert begun == re.findall(r"\\end\{(\w+)\}", text)[::-1] == ["table", "tabular"]
    rules = [text.index(f"\\{rule}rule") for rule in ("top", "mid", "bottom")]
    assert rules == sorted(rules)
    assert r"\begin{tabular}{lrrrrrr}" in text
    assert r"\label{tab:x}" in text
    assert "over 5 trials; 1 of the values" in text
    assert not re.search(r"(?<!\\)[_%#]", text)
    heads, body = rows_of(text)[:3], rows_of(text)[3:]
    widths = [
        sum(int(n) for n in re.findall(r"multicolumn\{(\d)\}", " ".join(row))) for row in heads
    ]
    assert widths == [6, 6, 6]
    assert heads[0][1] == r"\multicolumn{6}{c}{normalised SNR, devices in the population}"
    assert heads[1][1:] == [rf"\multicolumn{{3}}{{c}}{{{snr} dB}}" for snr in (0, 10)]
    assert [row[0] for row in body] == ["gbma", "ci", "tci(threshold=0.3)"]
    assert {len(row) for row in body} == {7}
    # bold is the largest mean of each column
    for j, cell in enumerate(zip(*(row[1:] for row in body), strict=True)):
        column = ends.isel(snr_db=j // 3, device_count=j % 3).mean("trial")
        assert [one.startswith(r"$\mathbf{") for one in cell] == list(column == column.max())
        for one, mean in zip(cell, column.values, strict=True):
            assert float(re.search(r"[\d.]+", one)[0]) == pytest.approx(mean, abs=1e-3)
        assert len({len(one.partition(r"\pm")[2].strip("$} ")) for one in cell}) == 1


def test_latex_rows_units_and_markdown(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    energy = ("--variable", "tx_energy_j", "--columns", "power")
    call(monkeypatch, "latex_table", ran, *energy, "--rows", "device_count")
    text = capsys.readouterr().out
    assert r"\caption{Energy radiated at the end [J], mean $\pm$ standard deviation over" in text
    body = rows_of(text)[2:]
    assert [row[:2] for row in body[:3]] == [["2", "0 dB"], ["", "10 dB"], ["4", "0 dB"]]
    assert text.count(r"\addlinespace") == 2
    assert body[0][2:] == [r"$801 \pm 0$"] * 3
    error = ("--variable", "aggregation_nmse", "--columns", "device_count", "--sel", "power=ci")
    call(monkeypatch, "latex_table", ran, *error, "--best", "row", "--format", "markdown")
    lines = [cells(line) for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert lines[0] == ["snr db", "device count 2", "device count 4", "device count 8"]
    assert lines[2] == ["0 dB", "0.2500 ± 0", "0.06250 ± 0", "**0.01562 ± 0**"]


def test_the_best_may_have_to_be_significant(ran: Path) -> None:
    """At 10 dB ci is best by 0.1, which five trials tell; at 0 dB somebody is by chance."""
    with xr.open_dataset(ran, engine="h5netcdf") as ds:
        table = build_grid(ds.load(), "test_accuracy", ["snr_db"], ["power"])
    marked = find_best(table, "power")
    assert marked.sum() == 6
    sure = find_best(table, "power", level=0.05)
    ci = [row[0] == "ci" for row in table.rows]
    np.testing.assert_array_equal(sure[:, 1], ci)
    assert sure[:, 0].sum() < 3
    lowest = find_best(table, "power", largest=False)
    assert not (marked & lowest).any()
    few = find_best(
        build_grid(ds.isel(trial=[0, 2]), "test_accuracy", ["snr_db"]), "power", level=0.05
    )
    assert not few.any()
