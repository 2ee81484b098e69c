"""Names of points cover neither each other nor marks, and stay in their panel."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from otafl.plots.labels import name_points

pytestmark = pytest.mark.exact


def panel(x: np.ndarray, y: np.ndarray, error: object = None, size: float = 6.0) -> Axes:
    figure = Figure(figsize=(3.9, 2.7))
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    ax.errorbar(x, y, error, error, linestyle="none", marker="o", markersize=size)
    ax.set(xlim=(0, 1), ylim=(0, 1))
    return ax


def boxes(ax: Axes) -> list[Bbox]:
    """Those of the names, without their leaders."""
    ax.figure.draw_without_rendering()
    return [Text.get_window_extent(text) for text in ax.texts]


def marks(ax: Axes, points: np.ndarray, size: float) -> list[Bbox]:
    half = size / 2 * ax.figure.dpi / 72
    return [Bbox([at - half, at + half]) for at in ax.transData.transform(points)]


@pytest.mark.parametrize("seed", range(6))
def test_names_of_crowded_points_are_apart(seed: int) -> None:
    points = np.random.default_rng(seed).random((24, 2))
    points[:6] = points[0] + 0.04 * np.random.default_rng(seed).standard_normal((6, 2))
    points = np.clip(points, 0.02, 0.98)
    ax = panel(*points.T, error=0.03, size=9.0)
    name_points(ax, [(*point, f"tci, {i} dB") for i, point in enumerate(points[:8])])
    found, frame = boxes(ax), ax.get_window_extent()
    assert len(found) >= 6
    for one, other in itertools.combinations(found, 2):
        assert not one.overlaps(other)
    for box in found:
        assert frame.contains(*box.min)
        assert frame.contains(*box.max)
        assert not any(box.overlaps(mark) for mark in marks(ax, points, 9.0))
    assert all(tuple(text.xy) in map(tuple, points) for text in ax.texts)


def test_a_lone_point_has_its_name_beside_it_without_a_line() -> None:
    ax = panel(np.array([0.5]), np.array([0.5]), error=0.2)
    name_points(ax, [(0.5, 0.5, "gbma")])
    ((text,), (box,)) = ax.texts, boxes(ax)
    assert text.arrow_patch is None
    gap = box.min - ax.transData.transform((0.5, 0.5))
    np.testing.assert_allclose(gap, 6.0 * ax.figure.dpi / 72, atol=1.0)


def test_a_name_goes_around_error_bars() -> None:
    """Long bars of two other points cross where it would be; the place on its left is free."""
    ax = panel(np.array([0.5, 0.6, 0.6]), np.array([0.5, 0.95, 0.05]), np.array([0.01, 0.5, 0.5]))
    name_points(ax, [(0.5, 0.5, "gbma")])
    (box,) = boxes(ax)
    assert box.x1 < ax.transData.transform((0.5, 0.5))[0]


def test_names_without_a_place_are_left_out() -> None:
    ax = panel(np.array([0.5]), np.array([0.5]))
    name_points(ax, [(0.5, 0.5, "n" * 200), (0.5, 0.5, "")])
    assert len(ax.texts) == 0
