"""Plain lines of progress; bars in terminals are in `golden/test_cli_exits.py`."""

from __future__ import annotations

import pytest

from otafl.core import console as bars


def test_rounds_that_were_found_done_say_nothing_of_the_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Ten rounds in five seconds after 90 that an earlier program did, and 100 to go."""
    now = iter((0.0, 0.0, 5.0))
    monkeypatch.setattr(bars.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(bars, "PLAIN_EVERY_S", 1.0)
    with bars.Progress() as progress:
        progress(90, 200)
        progress(100, 200)
    assert capsys.readouterr().err == "100/200 rounds, 2.0 rounds/s, 50 s left\n"
