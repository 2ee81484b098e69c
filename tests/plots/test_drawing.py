"""Figures are written as PNG, PDF and SVG."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from support.plot_bench import make_dataset

from otafl.plots import curve_data, draw, save


def test_files(tmp_path: Path) -> None:
    figure = draw(curve_data(make_dataset(), "test_accuracy"))
    for suffix, start in {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}.items():
        path = tmp_path / "new" / f"f.{suffix}"
        save(figure, path)
        assert path.read_bytes().startswith(start)


def test_a_figure_has_the_width_of_a_journals_column(tmp_path: Path) -> None:
    width = 3.5
    ds = make_dataset("snr_db", "power", "device_count")
    data = curve_data(ds, "test_accuracy", "snr_db", "power", "device_count")
    figure = draw(data, tmp_path / "f.png", width=width)
    assert imread(tmp_path / "f.png").shape[1] == pytest.approx(160 * width, abs=1)
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    edge = figure.get_tightbbox(renderer)
    assert edge.x0 >= 0
    assert edge.x1 <= width
    labels = [ax.get_ylabel() for ax in figure.axes if ax.get_ylabel()]
    assert set(labels) == {"test accuracy"}
    assert {text.get_fontsize() for text in figure.legends[0].get_texts()} == {8.0}
    panels = [ax.get_window_extent() for ax in figure.axes if ax.get_visible()]
    assert min(panel.width for panel in panels) > 0.7 * figure.dpi
    legend = figure.legends[0].get_window_extent()
    assert legend.y1 < min(panel.y0 for panel in panels)  # below, not beside


@pytest.mark.exact
@pytest.mark.parametrize(
    ("spread", "half", "said"),
    [
        ("deviation", 0.003, "mean ± one standard deviation"),
        ("error", 0.003 / np.sqrt(3), "mean ± one standard error"),
        # the 97.5 % quantile of Student's t with two degrees of freedom, from a table
        ("interval", 4.30265273 * 0.003 / np.sqrt(3), "95 % confidence interval of the mean"),
    ],
)
def test_bands_and_bars_show_the_spread_that_is_asked_for(
    spread: str, half: float, said: str
) -> None:
    ds = make_dataset("power")
    figure = draw(curve_data(ds, hue="power"), spread=spread)
    (band, _) = figure.axes[0].collections
    heights = band.get_paths()[0].vertices[:, 1]
    mean = curve_data(ds, hue="power")["mean"][0]
    assert heights.min() == pytest.approx(float(mean.min()) - half)
    assert heights.max() == pytest.approx(float(mean.max()) + half)
    assert said in figure.get_suptitle().replace("\n", " ")
    (bars,) = draw(curve_data(ds, x="power"), spread=spread).axes[0].containers
    (piece, _) = bars.lines[2][0].get_segments()
    assert (piece[1, 1] - piece[0, 1]) / 2 == pytest.approx(half)
