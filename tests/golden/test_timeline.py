"""The table of a trial's events, what is added up of it, and the Gantt chart, number by number.

Mutations that make a test here fail: the NaN padding kept, or rows in the order of the file; the
first trial whatever is asked; a place in ACTIVITIES for its name; events that end before the
window, or begin after it, kept; seconds not clipped to the window, or added up over all devices;
the sleep of a device that is away twice at once counted twice; slots of the drawn devices alone;
rows by the devices' numbers instead of their places; bars not clipped, in seconds on an axis of
hours; a hatch on rows that are too low for it; outlines on crowded rows.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from golden.test_cli import call

import otafl
from otafl import UserError
from otafl.analysis import timeline
from otafl.devices.activities import ACTIVITIES
from otafl.plots import gantt
from otafl.results.variables import VARIABLES

NAN = float("nan")
EVENTS = [
    [  # of trial 0: device, round, activity, start, end
        (0, 0, "receive", 0.0, 1.0),
        (1, 0, "receive", 0.0, 1.0),
        (0, 0, "compute", 1.0, 3.0),
        (1, 0, "lost", 1.0, 4.0),
        (0, 0, "wait", 3.0, 5.0),
        (1, -1, "empty", 4.0, 8.0),
        (1, -1, "left", 6.0, 10.0),
        (0, 0, "transmit", 5.0, 6.0),
        (2, 1, "transmit", 9.0, 10.0),
    ],
    [(2, 0, "transmit", 2.0, 3.0)],
]
SMALL = """\
name: small
data: digits
model: {name: mlp, hidden: [4]}
devices: {count: 3, compute: {name: lognormal, median_flops_per_s: 1e7}, deadline_s: 0.0016}
training: {rounds: 4, eval_every: 2, batch_size: 4}
output: {save_timeline: true}
sweep: {channel.snr_db: [0, 10]}
"""


def result() -> xr.Dataset:
    """Two trials of three devices; the first trial's events in reverse, as no order is promised."""
    columns = np.full((5, 2, 9), NAN)
    for trial, events in enumerate([EVENTS[0][::-1], EVENTS[1]]):
        for place, (device, round, activity, *times) in enumerate(events):
            columns[:, trial, place] = device, round, ACTIVITIES.index(activity), *times
    names = [f"timeline_{name}" for name in timeline.COLUMNS]
    data = {
        name: (("trial", "event"), column, {"units": VARIABLES[name].units})
        for name, column in zip(names, columns, strict=True)
    }
    data["sim_time_s"] = (("trial", "round"), np.array([[0.0, 12.0], [0.0, 3.0]]))
    data["updates_started"] = (("trial", "round"), np.array([[0.0, 4.0], [0.0, NAN]]))
    data["updates_lost"] = (("trial", "round"), np.array([[0.0, 1.0], [0.0, 0.0]]))
    data["tx_energy_j"] = (("trial", "round", "device"), np.zeros((2, 2, 3)))
    return xr.Dataset(data, {"trial": [0, 1], "round": [0, 5]}, {"title": "three"})


def rows_of(events: xr.Dataset) -> list[tuple]:
    return list(zip(*(events[name].values.tolist() for name in timeline.COLUMNS), strict=True))


def test_events_of_a_trial_in_order_of_time() -> None:
    events = otafl.timeline_of(result())
    assert rows_of(events) == sorted(EVENTS[0], key=lambda event: (event[3], event[0]))
    assert events["start_s"].attrs["units"] == "s"
    counts = {"updates_started": 4, "updates_lost": 1}
    assert events.attrs == {"title": "three, trial: 0", "devices": 3, "end_s": 12.0} | counts
    assert rows_of(otafl.timeline_of(result(), trial=1)) == EVENTS[1]


def swept() -> xr.Dataset:
    """Two points; the second has a trial 1 alone, and two devices."""
    other = result()
    other["tx_energy_j"][..., 2] = NAN
    for name in timeline.COLUMNS:
        other[f"timeline_{name}"][0] = NAN
    other["timeline_device"] = other["timeline_device"] * 0.5
    axis = xr.DataArray([0, 10], dims="snr_db", name="snr_db", attrs={"units": "dB"})
    both = xr.concat([result(), other], axis, data_vars="all", combine_attrs="override")
    both = both.assign_coords(final_round=("snr_db", [5.0, 5.0]))
    return both.assign_attrs(title="three")


def test_a_point_of_a_sweep() -> None:
    events = otafl.timeline_of(swept(), trial=1, snr_db=10)
    assert rows_of(events) == [(1, *EVENTS[1][0][1:])]
    assert events.attrs["title"] == "three, trial: 1, snr db: 10 dB"
    assert events.attrs["devices"] == 2
    assert otafl.timeline_of(swept(), 0, snr_db="10").sizes["event"] == 0
    assert otafl.timeline_of(swept().isel(snr_db=[0])).sizes["event"] == 9


@pytest.mark.parametrize(
    ("ds", "asked", "said"),
    [
        (result().drop_vars("timeline_round"), {}, r"no timeline; .*output.save_timeline: true"),
        (result(), {"trial": 2}, r"trial 2: no such trial; there are 0, 1"),
        (swept(), {}, r"also depends on snr_db \(0, 10\); pick one with --sel snr_db=0"),
        (swept(), {"snr_db": 5}, r"snr_db=5: no such value; snr_db has 0, 10"),
        (swept(), {"snr": 5}, r"--sel snr: not an axis .*did you mean 'snr_db'"),
        (swept(), {"round": 5}, r"--sel round: not an axis of this sweep \(known: snr_db\)"),
    ],
)
def test_what_cannot_be_asked_is_named(ds: xr.Dataset, asked: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        otafl.timeline_of(ds, **asked)


def test_seconds_of_the_whole_trial() -> None:
    """36 device seconds; device 0 is busy for 6, device 1 for 10 (away twice from 6 to 8), device 2
    for 1."""
    table = timeline.totals(timeline.window(otafl.timeline_of(result())))
    assert table["activity"].values.tolist() == [
        *("receive", "compute", "wait", "transmit", "lost", "left", "empty", "asleep")
    ]
    np.testing.assert_allclose(table["seconds"], [2, 2, 2, 2, 3, 4, 4, 36 - 17])
    np.testing.assert_array_equal(table["events"], [2, 1, 1, 2, 1, 1, 1, NAN])
    np.testing.assert_allclose(table["share"], table["seconds"] / 36)


def test_seconds_of_a_window_and_of_some_devices() -> None:
    part = timeline.window(otafl.timeline_of(result()), 2.0, 5.5, [1, 0])
    assert part.attrs["rows"] == [0, 1]
    table = timeline.totals(part)
    seconds = {"compute": 1.0, "wait": 2.0, "transmit": 0.5, "lost": 2.0, "empty": 1.5}
    assert dict(zip(table["activity"].values, table["seconds"].values, strict=True)) == seconds
    assert timeline.window(otafl.timeline_of(result()), 3.0, 99.0).attrs["until_s"] == 12.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((12.0,), r"--from 12 --until 12: no time between them; the trial took 12 s"),
        ((-1.0,), r"--from -1 --until 12: no time"),
        ((5.0, 5.0), r"--from 5 --until 5: no time"),
        ((None, None, [1, 3]), r"--devices: this result has devices 0 to 2, not 3"),
        ((None, None, []), r"--devices: this result has devices 0 to 2, name one at least"),
    ],
)
def test_windows_without_anything(arguments: tuple, said: str) -> None:
    with pytest.raises(UserError, match=said):
        timeline.window(otafl.timeline_of(result()), *arguments)


def test_a_union_of_intervals() -> None:
    start, end = np.array([5.0, 0.0, 1.0, 7.0, 3.0]), np.array([6.0, 4.0, 2.0, 8.0, 5.0])
    np.testing.assert_array_equal(timeline.merged(start, end), [[0, 7], [6, 8]])
    assert timeline.merged(np.empty(0), np.empty(0))[0].size == 0


def drawn(figure) -> dict:  # type: ignore[no-untyped-def]
    """Label of a collection -> (least x, least y, most x, most y) of its rectangles, by x."""
    return {
        c.get_label(): sorted(tuple(p.get_extents().extents.tolist()) for p in c.get_paths())
        for c in figure.axes[0].collections
    }


def test_bars_are_the_clipped_events_and_bands_the_slots() -> None:
    events = otafl.timeline_of(result())
    figure = gantt.chart(events, None, 2.0, 9.5, [0, 2])
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
    one = gantt.chart(events, None, 2.0, 9.5, [0])
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


def test_many_devices_and_many_events(tmp_path: Path) -> None:
    """10,000 events of ten devices are a texture, without outlines; first, what can be read."""
    events = many(10, 500)
    assert gantt.readable_s(events) == 30.0
    figure = gantt.chart(events, tmp_path / "many.png")
    assert len(drawn(figure)["transmit"]) == 5000
    assert all((c.get_linewidth() == 0).all() for c in figure.axes[0].collections)
    assert (tmp_path / "many.png").stat().st_size > 10_000
    figure = gantt.chart(many(200, 3), tmp_path / "rows.pdf")
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()][:3] == ["0", "10", "20"]
    assert figure.get_size_inches()[1] < 10
    assert gantt.readable_s(many(3, 2)) == 2.0


@pytest.mark.parametrize(
    ("step_s", "unit"), [(1e-3, "ms"), (1.0, "s"), (600.0, "min"), (7200.0, "h"), (86400.0, "d")]
)
def test_units_of_time(step_s: float, unit: str) -> None:
    figure = gantt.chart(many(1, 5, step_s))
    assert figure.axes[0].get_xlabel() == f"simulated time [{unit}]"
    last = max(bar[2] for bar in drawn(figure)["transmit"])
    seconds = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}[unit]
    assert (
        last == pytest.approx(5 * step_s / seconds) == pytest.approx(figure.axes[0].get_xlim()[1])
    )


def test_hatches_on_high_rows_alone() -> None:
    few, lots = otafl.timeline_of(result()), otafl.timeline_of(result())
    lots.attrs["devices"] = gantt.HATCHED_ROWS + 1
    for events, hatched in ((few, True), (lots, False)):
        bars = gantt.chart(events).axes[0].collections
        hatches = {bar.get_label(): bar.get_hatch() for bar in bars}
        assert bool(hatches["left"]) is hatched
        assert not hatches["compute"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("timeline")
    (home / "small.yaml").write_text(SMALL)
    call("run", home / "small.yaml", "--out", home / "small.nc", "--quiet")
    return home / "small.nc"


def test_the_command(ran: Path, capsys: pytest.CaptureFixture) -> None:
    table = ran.parent / "new" / "events.csv"
    call("timeline", ran, "--sel", "snr_db=10", "--csv", table)
    told = capsys.readouterr().out
    assert told.startswith("small, trial: 0, normalised SNR: 10 dB: 3 devices, 0 to ")
    assert f"{ran.parent / 'small_timeline.png'}\n" in told
    assert (ran.parent / "small_timeline.png").stat().st_size > 10_000
    assert "updates of the whole trial: 12 started, " in told
    events = otafl.timeline_of(otafl.open_results(ran), snr_db=10)
    lines = table.read_text().splitlines()
    assert lines[0] == "device,round,activity,start_s,end_s"
    assert len(lines) == 1 + events.sizes["event"]
    first = [events[name].values[0] for name in timeline.COLUMNS]
    assert lines[1] == ",".join(map(str, first))


def test_the_command_with_a_window(ran: Path, capsys: pytest.CaptureFixture) -> None:
    figure, table = ran.parent / "part.svg", ran.parent / "part.csv"
    call(
        *("timeline", ran, "--sel", "snr_db=0", "--from", 0.001, "--until", 0.002),
        *("--devices", "0,2-2", "-o", figure, "--csv", table),
    )
    assert "2 devices, 0.001000 to 0.002000 s of " in capsys.readouterr().out
    assert figure.read_text().startswith("<?xml")
    assert {line.split(",")[0] for line in table.read_text().splitlines()[1:]} == {"0", "2"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "pick one with --sel snr_db=0"),
        (["--sel", "snr_db=0", "--trial", 9], "trial 9: no such trial"),
        (["--sel", "snr_db"], "must be of the form dim=value"),
        (["--sel", "snr_db=0", "--devices", "0-x"], "--devices 0-x: must be numbers and ranges"),
        (["--sel", "snr_db=0", "--devices", "0-9"], "this result has devices 0 to 2, not 9"),
        (["--sel", "snr_db=0", "-o", "a.gif"], "must end in .png, .pdf or .svg"),
        (["--sel", "snr_db=0", "--csv", "/proc/no/a.csv"], "/proc/no/a.csv: cannot be written"),
    ],
)
def test_the_command_explains(
    ran: Path, options: list, said: str, capsys: pytest.CaptureFixture
) -> None:
    call("timeline", ran, *options, code=2)
    assert said in capsys.readouterr().err


def test_a_run_is_accounted_for(ran: Path) -> None:
    """No activity overlaps another, and with the sleep they are all there is."""
    part = timeline.window(otafl.timeline_of(otafl.open_results(ran), snr_db=0))
    table = timeline.totals(part)
    whole = 3 * part.attrs["until_s"]
    assert float(table["seconds"].sum()) == pytest.approx(whole)
    assert float(table["share"].sum()) == pytest.approx(1.0)


def test_the_page_names_every_activity_and_its_example_runs(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "timeline.md").read_text()
    assert all(f"| `{name}` |" in page for name in ACTIVITIES)
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    one = otafl.open_results(ran).isel(snr_db=0, drop=True)
    (ran.parent / "results").mkdir()
    one.to_netcdf(ran.parent / "results" / "cell.nc", engine="h5netcdf")
    monkeypatch.chdir(ran.parent)
    exec(code, {})
    assert "device" in capsys.readouterr().out
