"""Figures are written as PNG, PDF and SVG."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.swept_bench import make_dataset

from otafl.plots import curve_data, draw


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")]
)
def test_files(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = tmp_path / "new" / f"f{suffix}"
    draw(curve_data(make_dataset(), "test_accuracy"), path)
    assert path.read_bytes().startswith(start)
