"""`otafl plot` draws every kind, and explains what a kind does not take."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.image import imread
from support.command import call
from support.marks import first_is_fast
from support.plot_bench import make_ramp, make_result

from otafl.results.files import write_part


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A result file over SNR and policy."""
    values = {
        "test_accuracy": make_ramp("snr_db", "power"),
        "tx_energy_j": make_ramp("snr_db", "power", tail=(2, 3, 4)) + 1,
        "device_personal_own_test_accuracy": make_ramp("snr_db", "power", tail=(2, 3, 4)),
    }
    write_part(make_result(values, ["snr_db", "power"]), tmp_path / "r.nc")
    return tmp_path / "r.nc"


@pytest.mark.parametrize(
    ("args", "name", "columns", "rows"),
    first_is_fast(
        [
            (["--hue", "power", "--sel", "snr_db=0"], "r_test_accuracy_round", "round", 6),
            (["--kind", "heatmap"], "r_test_accuracy_heatmap", "test_accuracy_std", 6),
            (
                ["--kind", "pareto", "--hue", "power"],
                *("r_test_accuracy_tx_energy_j_pareto", "front", 6),
            ),
            (
                ["--kind", "cdf", "--hue", "power", "--facet", "snr_db"],
                *("r_device_personal_own_test_accuracy_cdf", "share", 6 * 8),
            ),
        ]
    ),
)
def test_every_kind_on_the_command_line(
    stored: Path,
    capsys: pytest.CaptureFixture,
    args: list[str],
    name: str,
    columns: str,
    rows: int,
) -> None:
    drawn = stored.parent / "drawn.csv"
    call("plot", stored, *args, "--csv", drawn)
    figure = stored.parent / f"{name}.png"
    assert capsys.readouterr().out == f"{drawn}\n{figure}\n"
    assert imread(figure).std() > 0.01
    table = pd.read_csv(drawn)
    assert columns in table.columns
    assert len(table) == rows


def test_width_and_labels_for_a_paper(stored: Path, capsys: pytest.CaptureFixture) -> None:
    out = stored.parent / "f.png"
    drawn = ("--hue", "power", "--sel", "snr_db=0", "--out", out)
    call("plot", stored, *drawn, "--width", 3.5, "--label", "gbma=equal power")
    assert imread(out).shape[1] == 160 * 3.5
    capsys.readouterr()
    for args, said in (
        (("--width", 99), "width 99: expected 2 to 20 inches, like 3.5 for a column"),
        (("--label", "gbma"), "--label gbma: must be of the form name=text"),
        (("--label", "ofdm=x"), "--label ofdm: not in this result"),
    ):
        call("plot", stored, *drawn, *args, code=2)
        told = capsys.readouterr().err
        assert told.startswith(f"otafl: error: {said}")
        assert told.count("\n") == 1


def test_wrong_flags_are_explained(stored: Path, capsys: pytest.CaptureFixture) -> None:
    wrong = []
    for args, said in [
        (["--x", "snr_db"], "--sel power=gbma"),
        (["--sel", "power"], "--sel power: must be of the form dim=value"),
        (["--y", "accuracy"], "did you mean 'test_accuracy'?"),
        (["--z", "test_accuracy"], "--z test_accuracy: --kind curves takes --y, --x, --hue"),
        (
            ["--kind", "heatmap", "--hue", "power"],
            "--hue power: --kind heatmap takes --z",
        ),
        (
            ["--kind", "cdf", "--y", "tx_energy_j"],
            "--y tx_energy_j: --kind cdf takes --x",
        ),
        (["--kind", "heatmap", "-o", "f.gif"], "f.gif: a figure's file must end in .png"),
    ]:
        call("plot", stored, *args, code=2)
        told = capsys.readouterr().err
        if not (told.startswith("otafl: error: ") and said in told):
            wrong.append((args, told))
    assert wrong == []
