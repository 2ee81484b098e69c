"""The picture beside a result has the axes that tell most."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.plot_bench import make_dataset

from otafl.plots import draw_overview


@pytest.mark.parametrize(
    ("names", "x", "curves", "panels"),
    [
        (("snr_db",), "round", 3, 1),
        (("snr_db", "power"), "normalised SNR [dB]", 2, 1),
        (("snr_db", "device_count", "power"), "normalised SNR [dB]", 2, 2),
    ],
)
def test_overview(tmp_path: Path, names: tuple, x: str, curves: int, panels: int) -> None:
    figure = draw_overview(make_dataset(*names), tmp_path / "o.png")
    assert len(figure.axes) == panels
    assert figure.axes[-1].get_xlabel() == x
    assert len(figure.axes[0].get_lines()) == curves
    assert (tmp_path / "o.png").stat().st_size > 1000
