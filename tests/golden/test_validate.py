"""`otafl validate`: what is printed and written, exit codes, and that its page names every law."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from otafl import cli
from otafl.validation import checks, report, suite
from otafl.validation.bench import Bench

DOCS = Path(__file__).parents[2] / "docs" / "validation.md"


def call(*args: object, code: int = 0) -> None:
    """The command in this process; it must end with the exit code."""
    with pytest.raises(SystemExit) as left:
        cli.main([str(arg) for arg in args])
    assert (left.value.code or 0) == code


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    files = ("--csv", tmp_path / "a.csv", "--figure", tmp_path / "a.png")
    call("validate", "--quick", "--only", "power", "--quiet", *files)
    captured = capsys.readouterr()
    assert captured.err == ""
    chosen = suite.list_laws("power")
    assert 10 < len(chosen) < 30
    assert captured.out.count("pass") == len(chosen) + 1  # and the heading
    assert f"{len(chosen)} laws hold" in captured.out
    with (tmp_path / "a.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == report.COLUMNS
    assert {line["law"] for line in lines} == {law.name for law in chosen}
    assert all(
        line["pass"] == "True" and (line["low"] or "budget" in line["law"]) for line in lines
    )
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_progress_where_the_output_is_no_terminal(capsys: pytest.CaptureFixture) -> None:
    chosen = suite.list_laws("receiver")
    call("validate", "--quick", "--only", "receiver")
    assert f"0/{len(chosen)} laws, now {chosen[0].name}" in capsys.readouterr().err


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
