"""Results that earlier versions of otafl wrote (`old/`, by `otafl sweep` of the scenario there,
whose learning was the same in all): they open, and everything that reads results takes them."""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from support.command import call

from otafl import open_results, sweeping
from otafl.core.errors import UserError
from otafl.results import packing as packs
from otafl.results.dataset import FORMAT
from otafl.results.files import read_part, write_part
from otafl.scenario import load_scenario

OLD = Path(__file__).with_name("old")
VERSIONS = sorted(path.name for path in OLD.iterdir())
"""Before there were segments of a link; before personalised methods; before devices' batteries;
before files had checksums."""


@pytest.fixture
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a sweep as that version left it."""
    folder = tmp_path / request.param
    shutil.copytree(OLD / request.param, folder)
    for path in (folder / "parts").glob("*.xz"):
        path.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
        path.unlink()
    return folder


def every(test: object) -> object:
    return pytest.mark.parametrize("old", VERSIONS, indirect=True)(test)


@every
def test_it_opens(old: Path) -> None:
    result = open_results(old)
    assert dict(result.sizes) | {"trial": 2, "snr_db": 2, "power": 2, "device": 3} == result.sizes
    assert list(result["power"].values) == ["gbma", "ci"]
    assert result["round"].values.tolist() == [0, 2, 4]
    assert result.attrs["complete"] == 1
    assert 0.05 < float(result["test_accuracy"].isel(round=-1).mean()) < 0.6


def test_the_numbers_of_the_uplink_did_not_change(tmp_path: Path) -> None:
    """The same seed draws the same fading and noise in all versions, and in this one."""
    opened = []
    for name in VERSIONS:
        shutil.copytree(OLD / name, tmp_path / name)
        paths = sorted((tmp_path / name / "parts").glob("*.xz"))
        for path in paths:
            path.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
        opened.append(open_results(tmp_path / name))
    now = sweeping.run(load_scenario(OLD / VERSIONS[-1] / "scenario.yaml"))
    for result in opened:
        for name in ("test_loss", "aggregation_nmse", "uplink_symbols"):
            xr.testing.assert_allclose(
                result[name].drop_vars("final_round"), now[name].drop_vars("final_round"), rtol=1e-3
            )


@pytest.mark.parametrize(
    "old",
    [VERSIONS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in VERSIONS[1:])],
    indirect=True,
)
def test_everything_that_reads_results_takes_it(
    old: Path, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    call("show", old)
    assert "gbma" in capsys.readouterr().out
    call("plot", old, "--out", tmp_path / "a.png", "--hue", "power", "--facet", "snr_db")
    call("convert", old, tmp_path / "a.csv")
    call("diff", old, old)
    assert (tmp_path / "a.csv").read_text().count("\n") == 1 + 2 * 2 * 2 * 3
    assert packs.count_finished_stacks(old) == 2


@pytest.mark.parametrize("old", VERSIONS[-1:], indirect=True)
def test_an_old_sweep_is_not_mixed_with_a_new_one(old: Path) -> None:
    """What a scenario means may have changed."""
    scenario = load_scenario(old / "scenario.yaml", ["training.rounds=6"])
    with pytest.raises(
        UserError, match="holds 2 finished parts of the scenario 'old', not of this"
    ):
        sweeping.sweep(scenario, old)


@pytest.mark.parametrize("old", VERSIONS[-1:], indirect=True)
def test_a_file_of_a_later_format_is_refused(old: Path) -> None:
    part = read_part(old / "parts" / "00000.nc")
    later = part.assign_attrs(format=np.int64(FORMAT + 1), otafl_version="9.0")
    write_part(later, old / "parts" / "00000.nc")
    with pytest.raises(UserError, match=r"written by otafl 9.0 in a format .* update otafl"):
        open_results(old)
