"""The command line: what each command prints and writes, and its exit code."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest
import yaml
from support.command import SWEEP, call

from otafl import open_results
from otafl.analysis.summary import format_mean_std


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep."""
    home = tmp_path_factory.mktemp("swept")
    (home / "sweep.yaml").write_text(SWEEP)
    call("sweep", home / "sweep.yaml", "--out", home / "out", "--quiet")
    return home / "out"


def test_version_and_help(capsys: pytest.CaptureFixture) -> None:
    call("--version")
    assert capsys.readouterr().out == f"otafl {importlib.metadata.version('otafl')}\n"
    call("--help")
    listed = capsys.readouterr().out
    commands = (
        "new run sweep check list show diff convert archive verify export plot report timeline "
        "validate data"
    )
    for command in commands.split():
        assert re.search(rf"^  {command} ", listed, re.MULTILINE)
    assert "..." not in listed.partition("Commands:")[2]


def test_run_writes_result_and_figure(small: Path, capsys: pytest.CaptureFixture) -> None:
    changes = ("training.rounds=2", "trials=3", "engine.device=cpu")
    call("run", "small.yaml", *(f"--set={one}" for one in changes))
    captured = capsys.readouterr()
    table, then, last = captured.out.strip().rsplit("\n", 2)
    assert table.startswith("test accuracy ")
    assert "end of each trial (final round 2), mean ± standard deviation" in table
    assert then.startswith("next: otafl show results/small.nc; otafl plot results/small.nc;")
    assert last == "result: results/small.nc  figure: results/small.png"
    assert re.search(r"^2/2 rounds", captured.err, re.MULTILINE)
    assert (small / "results/small.png").read_bytes().startswith(b"\x89PNG")
    ds = open_results(small / "results/small.nc")
    assert dict(ds["test_accuracy"].sizes) == {"trial": 3, "round": 2}
    assert yaml.safe_load(ds.attrs["scenario"])["engine"]["device"] == "cpu"
    names = sorted(p.name for p in (small / "results").iterdir())
    assert names == ["small.nc", "small.nc.sha256", "small.png"]


def test_run_quietly_to_a_named_file(small: Path, capsys: pytest.CaptureFixture) -> None:
    call("run", "sweep.yaml", "--out", "a/b.nc", "--quiet")
    captured = capsys.readouterr()
    assert captured.out == "result: a/b.nc  figure: a/b.png\n"
    assert captured.err == ""
    assert open_results("a/b.nc")["test_accuracy"].dims == ("snr_db", "power", "trial", "round")


def test_sweep_keeps_what_is_there(swept: Path, capsys: pytest.CaptureFixture) -> None:
    parts = sorted((swept / "parts").glob("*.nc"))
    assert parts
    assert (swept / "small.png").exists()
    before = {part: part.stat().st_mtime_ns for part in parts}
    parts[0].unlink()
    call("sweep", swept.parent / "sweep.yaml", "--out", swept)
    after = {part: part.stat().st_mtime_ns for part in parts}
    assert [part for part in parts if after[part] != before[part]] == parts[:1]
    assert open_results(swept).attrs["complete"] == 1
    assert f"result: {swept}" in capsys.readouterr().out


def test_check_prints_what_is_set(small: Path, capsys: pytest.CaptureFixture) -> None:
    call("check", "sweep.yaml", "--set", "seed=5")
    captured = capsys.readouterr()
    filled = yaml.safe_load(captured.out)
    assert filled["seed"] == 5
    assert "impairments" not in filled
    assert captured.err == (
        "sweep.yaml: valid; 6 points; one trial takes 0.04 MB at least\n"
        "--full prints every setting\n"
    )
    call("check", "sweep.yaml", "--full")
    captured = capsys.readouterr()
    assert "impairments" in yaml.safe_load(captured.out)
    assert captured.err.endswith("MB at least\n")


def test_list(capsys: pytest.CaptureFixture) -> None:
    call("list", "power")
    assert "gbma" in capsys.readouterr().out
    call("list")
    listed = capsys.readouterr().out
    for name in ("fashion_mnist", "fedrlr", "rayleigh", "over_the_air", "urban_micro"):
        assert name in listed
    assert "Zhu, Wang, Huang 2020" not in listed
    call("list", "presets")
    assert "Urban micro cell of 3GPP with 20 phones" in capsys.readouterr().out
    call("list", "urban_micro")
    assert "  name: umi" in capsys.readouterr().out
    call("list", "powr", code=2)
    assert "nothing of this name; did you mean 'power'? tables: data" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "name"),
    [("D2D", "topology: graph"), ("AirComp", "transport: over_the_air"), ("GBMA", "power: gbma")],
)
def test_list_knows_the_names_of_papers(
    word: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call("list", word)
    assert f"\n{name}\n" in capsys.readouterr().out


def test_list_knows_a_key_by_the_name_of_papers(capsys: pytest.CaptureFixture[str]) -> None:
    call("list", "irs", code=2)
    assert "nothing of this name; it is the key channel.ris;" in capsys.readouterr().err


def test_list_explains_a_component(capsys: pytest.CaptureFixture) -> None:
    call("list", "tci")
    said = capsys.readouterr().out
    assert said.startswith("power: tci\nTruncated channel inversion")
    assert re.search(r"^  threshold +threshold g_th on .*\n.*default 0\.1", said, re.MULTILINE)
    assert re.search(r"^  power:\s+name: tci", said, re.MULTILINE)
    assert "Zhu, Wang, Huang 2020" in said


def test_list_of_a_table_with_a_name_and_of_a_section(capsys: pytest.CaptureFixture) -> None:
    call("list", "downlink", "digital")
    said = capsys.readouterr().out
    assert said.startswith("downlink: digital\n")
    assert "transport: digital" not in said
    call("list", "training")
    said = " ".join(capsys.readouterr().out.split())
    assert "rounds communication rounds; whole number at least 1; default 100" in said
    assert re.search(r" duration_s .*, in s; default null", said)
    for name in ("impairments", "engine"):
        call("list", name)
        assert capsys.readouterr().out.startswith(f"{name}\n")
    call("list", "power", "cotf", code=2)
    assert "did you mean 'cotaf'?" in capsys.readouterr().err
    call("list", "pow", "tci", code=2)
    assert "list: no table 'pow'" in capsys.readouterr().err


def test_show_of_chosen_variables(swept: Path, capsys: pytest.CaptureFixture) -> None:
    call("show", swept, "--variables", "airtime_s, aggregation_nmse")
    shown = capsys.readouterr().out
    assert "airtime" in shown
    assert "nmse" in shown
    assert "accuracy" not in shown
    call("show", swept, "--variables", "airtime", code=2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "airtime: not a variable of this result; did you mean 'airtime_s'?" in captured.err


@pytest.mark.parametrize("columns", [40, 200])
def test_show_fits_the_terminal(
    swept: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    call("show", swept)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= columns
    assert "small" in shown
    accuracy = open_results(swept)["test_accuracy"].sel(snr_db=10, power="ci").isel(round=-1)
    cell = format_mean_std(accuracy.values)
    (row,) = [line for line in shown.splitlines() if re.match(r"\s*10\s+ci\s", line)]
    assert cell.split()[0] in row
    assert ("no room in this terminal" in shown) == (columns < 200)


def test_data_list(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    call("data", "list")
    listed = capsys.readouterr().out
    assert re.search(r"digits +yes", listed)
    assert "fashion_mnist" in listed
    call("data", "get", "imagenet", code=2)
    assert "imagenet" in capsys.readouterr().err
