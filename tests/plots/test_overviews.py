"""The picture beside a result has the axes that tell most."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.swept_bench import make_dataset

from otafl.plots import draw_overview


@pytest.mark.parametrize(
    ("names", "x", "curves", "panels"),
    [
        ((), "round", 1, 1),
        (("snr_db",), "round", 3, 1),
        pytest.param(("power",), "round", 2, 1, marks=pytest.mark.slow),
        (("snr_db", "power"), "signal-to-noise ratio [dB]", 2, 1),
        pytest.param(("device_count", "power"), "round", 2, 2, marks=pytest.mark.slow),
        (("snr_db", "device_count", "power"), "signal-to-noise ratio [dB]", 2, 2),
    ],
)
def test_overview(tmp_path: Path, names: tuple, x: str, curves: int, panels: int) -> None:
    figure = draw_overview(make_dataset(*names), tmp_path / "o.png")
    assert len(figure.axes) == panels
    assert figure.axes[-1].get_xlabel() == x
    assert len(figure.axes[0].get_lines()) == curves
    assert (tmp_path / "o.png").stat().st_size > 1000


def test_overview_of_an_unfinished_sweep_and_of_more_axes_than_it_can_draw(tmp_path: Path) -> None:
    ds = make_dataset("snr_db", "device_count", "power").reset_coords("final_round")
    ds = ds.expand_dims(seed=[3, 4]).set_coords("final_round").copy(deep=True)
    ds["test_accuracy"][:, 1] = np.nan
    figure = draw_overview(ds, tmp_path / "o.png")
    spread = "shading: mean ± one standard deviation, n = 3 trials"
    assert figure.get_suptitle() == f"devices: 10\n{spread}"
