"""The experiments of docs/coming_from.md: our side of each runs as it stands and ends where the
page says; so does Sionna's side.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import xarray as xr
from support.command import call
from support.pages import DOCS

import otafl

pytestmark = pytest.mark.slow

PAGE = (DOCS / "coming_from.md").read_text()


def block(name: str, page: Path = DOCS / "coming_from.md") -> str:
    """The block of a page whose first line names this file."""
    pattern = rf"^```\w+\n(# {re.escape(name)}\n.*?)^```$"
    (text,) = re.findall(pattern, page.read_text(), re.S | re.M)
    return text


def ran(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *change: str) -> xr.Dataset:
    """The result of a scenario of the page, run by the page's command in a folder."""
    monkeypatch.chdir(folder)
    (folder / f"{name}.yaml").write_text(block(f"{name}.yaml"))
    command = f"otafl run {name}.yaml"
    assert command in PAGE.splitlines()
    call(*command.split()[1:], "--quiet", *change)
    return otafl.open_results(folder / "results" / f"{name}.nc")


def said(pattern: str) -> list[float]:
    """The numbers that the page says."""
    found = re.search(pattern, " ".join(PAGE.split()))
    assert found, pattern
    return [float(one) for one in found.groups()]


def test_flower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = ran("flower_digits", tmp_path, monkeypatch)
    final = result.test_accuracy.isel(round=-1)
    low, high, mean, deviation = said(r"Flower ([\d.]+) to ([\d.]+) .*?otafl ([\d.]+) ± ([\d.]+)\.")
    assert float(final.mean()) == pytest.approx(mean, abs=0.006)
    assert low - 3 * deviation < float(final.mean()) < high + 3 * deviation


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
        low, high = said(r"otafl: ([\d.]+) to ([\d.]+)\. ## Sionna")
        last = result.test_accuracy.isel(round=slice(-5, None)).mean("trial")
        assert (last > low - 0.02).all()
        assert (last < high + 0.02).all()


def test_sionna(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides meet the law that the page gives, no = 1, K = 10; 1 % for 1000 symbols' own
    spread, 4 % four standard errors of 500 rounds."""
    names: dict[str, object] = {}
    for side in ("sionna_side.py", "otafl_side.py"):
        exec(compile(block(side), side, "exec"), names)
    law = 4 / math.pi - 1 + 2 / (math.pi * 10)
    assert said(r"pi K\) = ([\d.]+):") == [pytest.approx(law, abs=6e-4)]
    assert names["theirs"] == pytest.approx(law, rel=0.05)
    assert names["ours"] == pytest.approx(law, rel=0.05)
    ran("sionna_trained", tmp_path, monkeypatch)
