"""Traces worked by hand, and files that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.lives import make_lives, take_changes

from otafl.core.errors import UserError

pytestmark = pytest.mark.exact


def traced(folder: Path, rows: str, devices: int = 3) -> list[Any]:
    file = folder / "trace.csv"
    file.write_text(f"device,start_s,end_s\n{rows}")
    return make_lives("trace", [0], [0], devices, file=str(file))[0]


def test_a_trace_by_hand(tmp_path: Path) -> None:
    lives = traced(tmp_path, "7,5,8\n4,0,2\n\n7,1,2\n4,2,3\n", devices=5)
    four = [(3.0, False)]  # 0 to 2 and 2 to 3 are one
    seven = [(0.0, False), (1.0, True), (2.0, False), (5.0, True), (8.0, False)]
    assert [take_changes(life) for life in lives] == [four, seven, four, seven, four]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("0,0,1\n\n0,x,3\n", "line 4, column 'start_s': got 'x'; must be a finite number"),
        ("0,-1,1\n", "line 2: got device 0, start_s -1; must be at least 0"),
        (
            "0.5,0,1\n",
            "line 2: got device 0.5, start_s 0; must be at least 0, and device a whole number",
        ),
        ("0,2,2\n", "line 2: end_s: got 2; must be after start_s (2)"),
        (
            "0,0,2\n0,5,6\n0,1,3\n",
            "line 4: start_s: got 1, inside another interval of device 0",
        ),
        ("0,0,1,4\n", "line 2: got 4 cells; must be 3, one per column"),
        ("0,,1\n", "line 2: must have a number in each of device, start_s, end_s"),
        ("", "has no rows below its first line"),
    ],
)
def test_a_bad_trace_names_its_line(tmp_path: Path, rows: str, says: str) -> None:
    with pytest.raises(UserError) as error:
        traced(tmp_path, rows)
    assert says in str(error.value)
    assert f"devices.availability.file: '{tmp_path / 'trace.csv'}'" in str(error.value)


def test_a_trace_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    for content, says in (
        (
            None,
            "cannot be read (No such file or directory); must be a CSV file with columns of device",
        ),
        (b"", "has no rows below its first line"),
        (b"a,b\n1,2\n", "line 1: column 'a' is unknown; known: device, start_s, end_s"),
        (b"device,start_s,end_s\n\xff,1,2\n", "cannot be read"),
    ):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(UserError) as error:
            make_lives("trace", [0], [0], 1, file=str(file))
        assert says in str(error.value)
