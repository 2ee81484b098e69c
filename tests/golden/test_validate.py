"""`otafl validate`: what is printed and written, and exit codes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from support.command import call

from otafl.validation import checks, report, suite
from otafl.validation.bench import Bench


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Progress is shown although the output is no terminal."""
    files = ("--csv", tmp_path / "a.csv", "--figure", tmp_path / "a.png")
    call("validate", "--quick", "--only", "receiver", *files)
    captured = capsys.readouterr()
    chosen = suite.list_laws("receiver")
    assert f"0/{len(chosen)} laws, now {chosen[0].name}" in captured.err
    assert captured.out.count("pass") == len(chosen) + 1  # and the heading
    assert f"{len(chosen)} laws hold" in captured.out
    with (tmp_path / "a.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == report.COLUMNS
    assert {line["law"] for line in lines} == {law.name for law in chosen}
    assert {line["pass"] for line in lines} == {"True"}
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_failure_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Exit code 1, every failing case in the table; a law that cannot be run is one."""

    def wrong(bench: Bench) -> list[checks.Check]:
        cases = [
            checks.check_exact(1.0, 2.0, case="first"),
            checks.check_exact(1.0, 3.0, case="second"),
        ]
        return [*cases, checks.check_exact(1.0, 1.0)]

    def broken(bench: Bench) -> list[checks.Check]:
        raise ValueError("no such thing")

    laws = [checks.Law("a wrong law", "nowhere", wrong), checks.Law("a broken law", "", broken)]
    monkeypatch.setattr(suite, "list_laws", lambda only: laws)
    call("validate", "--quiet", code=1)
    out = capsys.readouterr().out
    assert out.count("FAIL") == 3
    assert "2 of 2 laws failed" in out
    assert "no such thing" in out
