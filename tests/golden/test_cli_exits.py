"""How a command ends early, what it says then, and its progress until it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import call

from otafl import cli, open_results
from otafl.cli import process, running
from otafl.core import console as bars


def test_the_installed_command_shows_no_traceback(small: Path) -> None:
    script = Path(sys.executable).with_name("otafl")
    done = subprocess.run([script, "run", "a.yaml"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("otafl: error: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("args", "word"), [(["sweeep"], "sweep"), (["data", "lst"], "list"), (["plto", "x"], "plot")]
)
def test_the_command_that_was_meant_is_suggested(
    args: list[str], word: str, capsys: pytest.CaptureFixture
) -> None:
    call(*args, code=2)
    assert f"Did you mean '{word}'?" in capsys.readouterr().err


def test_the_file_that_was_meant_is_suggested(small: Path, capsys: pytest.CaptureFixture) -> None:
    call("run", "smal.yaml", code=2)
    assert "(No such file or directory); did you mean 'small.yaml'?" in capsys.readouterr().err
    (small / "small.nc").touch()
    for command in ("show", "verify"):
        call(command, "smal.nc", code=2)
        assert "did you mean 'small.nc'?" in capsys.readouterr().err
    (small / "study").mkdir()
    (small / "study" / "base.yaml").touch()
    call("check", "stdy/base.yaml", code=2)
    assert "did you mean 'study/base.yaml'?" in capsys.readouterr().err
    call("run", "elsewhere.txt", code=2)
    assert "did you mean" not in capsys.readouterr().err


def test_nothing_is_computed_for_a_folder_that_cannot_be_written(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from otafl import sweeping

    monkeypatch.setattr(sweeping, "sweep", lambda *_: pytest.fail("computed"))
    call("sweep", "small.yaml", "--out", "small.yaml/folder", code=2)


@pytest.fixture
def _as_a_program(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `cli.main()` take the signals of this process for a test."""
    monkeypatch.setattr(process, "interruption", process.Interruption())
    monkeypatch.setattr(running, "interruption", process.interruption)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = {one: signal.getsignal(one) for one in process.SIGNALS}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.mark.usefixtures("signals_arrive", "_as_a_program")
@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("run", signal.SIGINT),
        pytest.param("sweep", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_an_interruption_says_what_was_kept(
    number: signal.Signals,
    command: str,
    small: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture,
) -> None:
    from otafl.sweeping import stack_job

    true = stack_job.run_stack
    stacks = []

    def interrupted(*args: object, **kwargs: object) -> object:
        stacks.append(args)
        if len(stacks) == 2:
            signal.raise_signal(number)
        return true(*args, **kwargs)

    monkeypatch.setattr(stack_job, "run_stack", interrupted)
    monkeypatch.setattr(sys, "argv", ["otafl", command, "sweep.yaml", "--quiet"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 128 + number
    assert re.fullmatch(
        r"otafl: interrupted; 1 finished part kept in results/small(\.unfinished)?; "
        r"the same command resumes from there\n",
        capfd.readouterr().err,
    )
    process.interruption.number = 0  # as in another program
    call(command, "sweep.yaml", "--quiet")
    assert open_results(small / "results" / ("small.nc" if command == "run" else "small"))


def test_an_unexpected_error_is_not_hidden(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from otafl import sweeping

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sweeping, "run", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main(["run", "small.yaml", "--quiet"])


def test_plain_progress_is_a_line_now_and_then_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr(bars.time, "monotonic", lambda: now[0])
    with bars.Progress(quiet=False) as progress:
        for done in range(100, 1101):
            progress(done, 1100, "stack 1 of 1")
            now[0] += 0.025
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "500/1100 rounds, 40 rounds/s, 15 s left, stack 1 of 1"
    assert lines[-1] == "1100/1100 rounds, 40 rounds/s, stack 1 of 1"
    assert len(lines) == 3


def test_progress_bar_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(bars, "BAR_EVERY_S", 0.0)
    with bars.Progress(quiet=False) as progress:
        progress(1, 4, "")
        progress(4, 4, "")
    shown = capsys.readouterr().err
    assert "4/4 rounds" in shown
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert max(map(len, re.split(r"[\r\n]", plain))) <= 60
