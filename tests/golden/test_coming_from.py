"""The experiments of docs/coming_from.md: our side of each runs as it stands, and so does Sionna's
side of one.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import xarray as xr
from support.command import call
from support.pages import DOCS, read_lines, write_files

import otafl

pytestmark = pytest.mark.slow

PAGE = DOCS / "coming_from.md"


def ran(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *change: str) -> xr.Dataset:
    """The result of a scenario of the page, run by the page's command in a folder."""
    monkeypatch.chdir(folder)
    assert f"{name}.yaml" in write_files(PAGE, folder)
    command = f"otafl run {name}.yaml"
    assert command in read_lines(PAGE)
    call(*command.split()[1:], "--quiet", *change)
    return otafl.open_results(folder / "results" / f"{name}.nc")


def test_flower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = ran("flower_digits", tmp_path, monkeypatch)
    assert 0.80 < float(result.test_accuracy.isel(round=-1).mean()) < 0.87


@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize(
    ("name", "changes"),
    [("pfllib_fashion", ("training.local_steps=2",)), ("flgo_fashion", ())],
)
def test_of_fashion_mnist(
    name: str, changes: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ran(name, tmp_path, monkeypatch, *(f"--set={one}" for one in changes))
    if name == "pfllib_fashion":
        assert "own_test_accuracy" in result
        assert result.sizes["round"] == 3
    else:
        assert (result.test_accuracy.isel(round=slice(-5, None)).mean("trial") > 0.65).all()


def test_sionna(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides meet the law, no = 1, K = 10; 1 % for 1000 symbols' own spread, 4 % four standard
    errors of 500 rounds."""
    names: dict[str, object] = {}
    write_files(PAGE, tmp_path)
    for side in ("sionna_side.py", "otafl_side.py"):
        exec(compile((tmp_path / side).read_text(), side, "exec"), names)
    law = 4 / math.pi - 1 + 2 / (math.pi * 10)
    assert names["theirs"] == pytest.approx(law, rel=0.05)
    assert names["ours"] == pytest.approx(law, rel=0.05)
    ran("sionna_trained", tmp_path, monkeypatch)
