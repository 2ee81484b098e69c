"""The table of a trial's events and what is added up of it, number by number."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from support.timeline_bench import EVENTS, NAN, make_result, make_swept_result, to_rows

import otafl
from otafl import UserError
from otafl.analysis import timeline

pytestmark = pytest.mark.exact


def test_events_of_a_trial_in_order_of_time() -> None:
    events = otafl.extract_timeline(make_result())
    assert to_rows(events) == sorted(EVENTS[0], key=lambda event: (event[3], event[0]))
    assert events["start_s"].attrs["units"] == "s"
    counts = {"updates_started": 4, "updates_lost": 1}
    assert events.attrs == {"title": "three, trial: 0", "devices": 3, "end_s": 12.0} | counts
    assert to_rows(otafl.extract_timeline(make_result(), trial=1)) == EVENTS[1]


@pytest.mark.parametrize(
    ("ds", "asked", "said"),
    [
        (
            make_result().drop_vars("timeline_round"),
            {},
            r"no timeline; .*output.save_timeline: true",
        ),
        (make_result(), {"trial": 2}, r"trial 2: no such trial; there are 0, 1"),
        (
            make_swept_result(),
            {},
            r"also depends on snr_db \(0, 10\); pick one with --sel snr_db=0",
        ),
        (make_swept_result(), {"snr": 5}, r"--sel snr: not a dim .*did you mean 'snr_db'"),
    ],
)
def test_what_cannot_be_asked_is_named(ds: xr.Dataset, asked: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        otafl.extract_timeline(ds, **asked)


def test_seconds_of_the_whole_trial() -> None:
    """36 device seconds; device 0 is busy for 6, device 1 for 10 (away twice from 6 to 8), device 2
    for 1."""
    table = timeline.sum_by_activity(timeline.select_window(otafl.extract_timeline(make_result())))
    assert table["activity"].values.tolist() == [
        *("receive", "compute", "wait", "transmit", "lost", "left", "empty", "asleep")
    ]
    np.testing.assert_allclose(table["seconds"], [2, 2, 2, 2, 3, 4, 4, 36 - 17])
    np.testing.assert_array_equal(table["events"], [2, 1, 1, 2, 1, 1, 1, NAN])
    np.testing.assert_allclose(table["share"], table["seconds"] / 36)


def test_seconds_of_a_window() -> None:
    """Device 2 sleeps through it."""
    part = timeline.select_window(otafl.extract_timeline(make_result()), 2.0, 5.5)
    table = timeline.sum_by_activity(part)
    seconds = {"compute": 1.0, "wait": 2.0, "transmit": 0.5, "lost": 2.0, "empty": 1.5}
    seconds["asleep"] = 3.5
    assert dict(zip(table["activity"].values, table["seconds"].values, strict=True)) == seconds
    assert (
        timeline.select_window(otafl.extract_timeline(make_result()), 3.0, 99.0).attrs["until_s"]
        == 12.0
    )


def test_a_window_without_any_time_is_refused() -> None:
    said = r"--from 12 --until 12: no time between them; the trial took 12 s"
    with pytest.raises(UserError, match=said):
        timeline.select_window(otafl.extract_timeline(make_result()), 12.0)
