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


def test_the_command_that_was_meant_is_suggested(capsys: pytest.CaptureFixture) -> None:
    call("data", "lst", code=2)
    assert "Did you mean 'list'?" in capsys.readouterr().err


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
def test_an_interruption_says_what_was_kept(
    small: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    from otafl.sweeping import stack_job

    true = stack_job.run_stack
    stacks = []

    def interrupted(*args: object, **kwargs: object) -> object:
        stacks.append(args)
        if len(stacks) == 2:
            signal.raise_signal(signal.SIGINT)
        return true(*args, **kwargs)

    monkeypatch.setattr(stack_job, "run_stack", interrupted)
    monkeypatch.setattr(sys, "argv", ["otafl", "run", "sweep.yaml", "--quiet"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 128 + signal.SIGINT
    assert re.fullmatch(
        r"otafl: interrupted; 1 finished part kept in results/small.unfinished; "
        r"the same command resumes from there\n",
        capfd.readouterr().err,
    )
    process.interruption.number = 0  # as in another program
    call("run", "sweep.yaml", "--quiet")
    assert open_results(small / "results" / "small.nc")


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
