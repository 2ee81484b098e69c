"""The Gantt chart, number by number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from support.timeline_bench import make_result

import otafl
from otafl.analysis import timeline
from otafl.devices.activities import ACTIVITIES
from otafl.plots import gantt


def drawn(figure) -> dict:  # type: ignore[no-untyped-def]
    """Label of a collection -> (least x, least y, most x, most y) of its rectangles, by x."""
    return {
        c.get_label(): sorted(tuple(p.get_extents().extents.tolist()) for p in c.get_paths())
        for c in figure.axes[0].collections
    }


def test_bars_are_the_clipped_events_and_bands_the_slots() -> None:
    events = otafl.extract_timeline(make_result())
    figure = gantt.draw_chart(events, None, 2.0, 9.5, [0, 2])
    bars = drawn(figure)
    assert set(bars) == {"compute", "wait", "transmit", "uplink slot"}
    half = gantt.LOOKS["compute"].height / 2
    np.testing.assert_allclose(bars["compute"], [(2.0, -half, 3.0, half)])
    half = gantt.LOOKS["transmit"].height / 2
    np.testing.assert_allclose(
        bars["transmit"], [(5.0, -half, 6.0, half), (9.0, 1 - half, 9.5, 1 + half)]
    )
    np.testing.assert_allclose(bars["uplink slot"], [(5, 0, 6, 1), (9, 0, 10, 1)])
    ax = figure.axes[0]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["0", "2"]
    assert ax.get_xlabel() == "simulated time [s]"
    assert ax.get_xlim() == (2.0, 9.5)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(bars)
    one = gantt.draw_chart(events, None, 2.0, 9.5, [0])
    assert len(drawn(one)["uplink slot"]) == 2


def test_activities_differ_without_colour() -> None:
    """Those of one height are 0.1 apart in luminance, or hatched unlike each other."""
    from matplotlib.colors import to_rgb

    assert set(gantt.LOOKS) == set(ACTIVITIES)
    for name, look in gantt.LOOKS.items():
        for other, its in gantt.LOOKS.items():
            if name < other and look.height == its.height:
                grey = [np.dot(to_rgb(c), [0.2126, 0.7152, 0.0722]) for c in (look[0], its[0])]
                assert abs(grey[0] - grey[1]) > 0.1 or look.hatch != its.hatch, (name, other)


def many(devices: int, slots: int, step_s: float = 1.0) -> xr.Dataset:
    """Devices that compute and transmit in every slot."""
    at = np.repeat(np.arange(slots) * step_s, devices)
    start = np.r_[at, at + 0.9 * step_s]
    device = np.tile(np.arange(devices), 2 * slots)
    activity = np.repeat(["compute", "transmit"], devices * slots)
    order = np.lexsort((device, start))
    end = np.r_[at + 0.9 * step_s, at + step_s]
    columns = [device, np.zeros(len(device)), activity, start, end]
    about = {"title": "many", "devices": devices, "end_s": slots * step_s}
    data = {n: ("event", c[order]) for n, c in zip(timeline.COLUMNS, columns, strict=True)}
    return xr.Dataset(data, attrs=about)


@pytest.mark.slow
def test_many_devices_and_many_events(tmp_path: Path) -> None:
    """10,000 events of ten devices are a texture, without outlines; first, what can be read."""
    events = many(10, 500)
    assert gantt.find_readable_time(events) == 30.0
    figure = gantt.draw_chart(events, tmp_path / "many.png")
    assert len(drawn(figure)["transmit"]) == 5000
    assert all((c.get_linewidth() == 0).all() for c in figure.axes[0].collections)
    assert (tmp_path / "many.png").stat().st_size > 10_000
    figure = gantt.draw_chart(many(200, 3), tmp_path / "rows.pdf")
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()][:3] == ["0", "10", "20"]
    assert figure.get_size_inches()[1] < 10
    assert gantt.find_readable_time(many(3, 2)) == 2.0


@pytest.mark.parametrize(
    ("step_s", "unit"), [(1e-3, "ms"), (1.0, "s"), (600.0, "min"), (7200.0, "h"), (86400.0, "d")]
)
def test_units_of_time(step_s: float, unit: str) -> None:
    figure = gantt.draw_chart(many(1, 5, step_s))
    assert figure.axes[0].get_xlabel() == f"simulated time [{unit}]"
    last = max(bar[2] for bar in drawn(figure)["transmit"])
    seconds = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}[unit]
    assert (
        last == pytest.approx(5 * step_s / seconds) == pytest.approx(figure.axes[0].get_xlim()[1])
    )


def test_hatches_on_high_rows_alone() -> None:
    few, lots = otafl.extract_timeline(make_result()), otafl.extract_timeline(make_result())
    lots.attrs["devices"] = gantt.HATCHED_ROWS + 1
    for events, hatched in ((few, True), (lots, False)):
        bars = gantt.draw_chart(events).axes[0].collections
        hatches = {bar.get_label(): bar.get_hatch() for bar in bars}
        assert bool(hatches["left"]) is hatched
        assert not hatches["compute"]
