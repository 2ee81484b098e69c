"""The Gantt chart, number by number."""

from __future__ import annotations

import numpy as np
from support.timeline_bench import make_result

import otafl
from otafl.plots import gantt


def drawn(figure) -> dict:  # type: ignore[no-untyped-def]
    """Label of a collection -> (least x, least y, most x, most y) of its rectangles, by x."""
    return {
        c.get_label(): sorted(tuple(p.get_extents().extents.tolist()) for p in c.get_paths())
        for c in figure.axes[0].collections
    }


def test_bars_are_the_clipped_events_and_bands_the_slots() -> None:
    events = otafl.extract_timeline(make_result())
    figure = gantt.draw_chart(events, None, 2.0, 9.5)
    bars = drawn(figure)
    assert set(bars) == {"compute", "wait", "transmit", "lost", "left", "empty", "uplink slot"}
    half = gantt.LOOKS["compute"].height / 2
    np.testing.assert_allclose(bars["compute"], [(2.0, -half, 3.0, half)])
    half = gantt.LOOKS["transmit"].height / 2
    np.testing.assert_allclose(
        bars["transmit"], [(5.0, -half, 6.0, half), (9.0, 2 - half, 9.5, 2 + half)]
    )
    np.testing.assert_allclose(bars["uplink slot"], [(5, 0, 6, 1), (9, 0, 10, 1)])
    ax = figure.axes[0]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["0", "1", "2"]
    assert ax.get_xlabel() == "simulated time [s]"
    assert ax.get_xlim() == (2.0, 9.5)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(bars)
