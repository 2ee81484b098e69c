"""The bar of a notebook; bars in terminals and plain lines are in `golden/test_cli_exits.py`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from otafl.core import progress as bars


class Cell:
    """What IPython's `display` returns for an output that can be replaced."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def update(self, shown: Any) -> None:
        self.texts.append(shown._repr_mimebundle_([], [])["text/plain"])


def test_a_notebook_replaces_one_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    cell, ipython = Cell(), ModuleType("IPython.display")
    ipython.display = lambda shown, display_id: cell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", ipython)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(bars, "BAR_EVERY_S", 0.0)
    with bars.Progress() as progress:
        progress(1, 4, "stack 1 of 2")
        progress(4, 4, "stack 2 of 2")
    assert [text.strip()[:10] for text in cell.texts] == ["1/4 rounds", "4/4 rounds"]
    assert "stack 2 of 2" in cell.texts[-1]
    assert capsys.readouterr().err == ""


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture) -> None:
    with bars.Progress(quiet=True) as progress:
        progress(1, 1, "")
    assert capsys.readouterr().err == ""


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
