"""Pages on the radio link (docs/places.md, waveform.md, interference.md): their blocks, run one
after the other as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden.test_docs import DOCS, run_blocks

pytestmark = pytest.mark.slow


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_blocks(DOCS / "places.md", monkeypatch, tmp_path)
    for file in ("results/town.nc", "town_map.png"):
        assert (tmp_path / file).stat().st_size > 5000


def test_waveform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first table's numbers, but for what another processor rounds."""
    names = run_blocks(DOCS / "waveform.md", monkeypatch, tmp_path)
    page = (DOCS / "waveform.md").read_text()
    for case, found in names["errors"].items():
        (line,) = (line for line in page.splitlines() if line.startswith(f"| {case} |"))
        assert found == pytest.approx(float(line.split("|")[2]), abs=2e-4)


def test_interference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table's numbers, but for what another processor rounds."""
    names = run_blocks(DOCS / "interference.md", monkeypatch, tmp_path)
    page = (DOCS / "interference.md").read_text()
    for server, row in zip(("average", "adagrad", "adam"), names["median"].values, strict=True):
        (line,) = (line for line in page.splitlines() if line.startswith(f"| `{server}` |"))
        written = [float(cell) for cell in line.split("|")[2:-1]]
        assert row == pytest.approx(written, abs=0.02)
