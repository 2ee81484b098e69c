"""A map of interruptions: signals at many moments of a short sweep, from the first on at which the
command line can do something about them.

Those of the kinds `STARTED` fall among imports, too. The other programs begin with their imports
done, so all their moments fall into the work.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from contract.test_sweeps import same
from support.programs import Program

from otafl import sweeping
from otafl.scenario import load_scenario

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("signals_arrive")]

SCENARIO = """\
name: short
data: {name: digits, train_samples: 300}
model: {name: mlp, hidden: [4]}
devices: {count: 4}
training: {rounds: 100, eval_every: 10, local_steps: 2, eval_samples: 40}
trials: 2
engine: {device: cpu, threads: 1}
output: {save_models: true}
sweep: {training.batch_size: [2, 3, 4, 5]}
"""

AGAIN_S = 0.6
"""Between two signals that are two."""

MOMENTS = int(os.environ.get("OTAFL_TEST_MOMENTS", "4"))
"""At which a sweep is interrupted; more take longer and see more."""

KINDS: dict[str, tuple[Sequence[signal.Signals], int]] = {
    "once": ([signal.SIGINT], MOMENTS),
    "terminated": ([signal.SIGTERM], MOMENTS // 2),
    "hung up": ([signal.SIGHUP], MOMENTS // 2),
    "twice": ([signal.SIGINT, signal.SIGINT], MOMENTS // 2),
}
"""Signals in a row, and the number of moments at which the first is sent."""

STARTED = ("once",)
"""Kinds of programs that Python starts, where some signals fall among imports."""


@dataclass(frozen=True)
class Left:
    """How a program ended, and when the first signal was sent after it was guarded."""

    moment: float
    code: int
    said: str


def guarded(process: subprocess.Popen | Program) -> bool:
    """Whether the program catches SIGTERM by now, or has ended."""
    if process.poll() is not None:
        return True
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> (signal.SIGTERM - 1) & 1)


def start(*arguments: object) -> subprocess.Popen:
    """A command that Python starts."""
    return subprocess.Popen(
        [sys.executable, "-m", "otafl.cli", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def fork(*arguments: object) -> Program:
    """A command that begins with its imports done."""
    return Program(
        *("-m", "otafl.cli", *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


Begin = Callable[..., subprocess.Popen | Program]


def begin_guarded(begin: Begin, *arguments: object) -> subprocess.Popen | Program:
    """A command that is guarded by now."""
    process = begin(*arguments)
    while not guarded(process):
        time.sleep(0.001)
    return process


def disturbed(
    begin: Begin, signals: Sequence[signal.Signals], moment: float, *arguments: object
) -> Left:
    """What a command leaves by that is sent signals, `AGAIN_S` apart."""
    process = begin_guarded(begin, *arguments)
    time.sleep(moment)
    process.send_signal(signals[0])
    for _, other in pairwise(signals):
        time.sleep(AGAIN_S)
        process.send_signal(other)
    said = process.communicate(timeout=240)[1]
    return Left(moment, process.returncode, said)


def lives(
    begin: Begin,
    signals: Sequence[signal.Signals],
    moments: int,
    longest: float,
    command: Callable[[int], list],
) -> list[Left]:
    """How commands left, two at a time, that were sent signals at moments up to the longest."""
    with ThreadPoolExecutor(2) as pool:
        futures = [
            pool.submit(disturbed, begin, signals, longest * number / moments, *command(number))
            for number in range(moments)
        ]
    return [future.result() for future in futures]


def undisturbed(begin: Begin, *arguments: object) -> tuple[float, str]:
    """How long a command takes, and what it says on stderr."""
    process = begin_guarded(begin, *arguments)
    began = time.monotonic()
    said = process.communicate(timeout=240)[1]
    assert process.returncode == 0, said
    return time.monotonic() - began, said


def check(all_: Sequence[Left], signals: Sequence[signal.Signals], own: str = "") -> None:
    """Every life ended with sentences and the signal's code, or had nothing left to do; besides it
    may have said what is the command's own."""
    for left in all_:
        said = left.said
        for line in own.splitlines(keepends=True):  # of which a signal may leave the first ones
            if not said.startswith(line):
                break
            said = said.removeprefix(line)
        if left.code == 0:
            assert said == "", left
        else:
            assert left.code in (128 + signals[0], *(-number for number in signals[1:])), left
            sentence = re.search(r"^otafl: interrupted[^\n]*\n\Z", said, re.MULTILINE)
            assert sentence or left.code < 0, left
            assert "Traceback" not in said or "Exception ignored" in said, left


@pytest.fixture(scope="module")
def whole_sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Begin, float]]:
    """The scenario's file, beside the folder `whole` of a sweep that nobody disturbed, and how long
    its command took."""
    file = tmp_path_factory.mktemp("sweep") / "short.yaml"
    file.write_text(SCENARIO)
    took = {}
    for begin, name in ((start, "other"), (fork, "whole")):
        took[begin], _ = undisturbed(begin, "sweep", file, "--out", file.with_name(name), "--quiet")
    return file, took


@pytest.mark.parametrize("kind", KINDS)
def test_a_sweep_is_interrupted_at_any_moment(
    kind: str, whole_sweep: tuple[Path, dict[Begin, float]], tmp_path: Path
) -> None:
    """The same command goes on to the numbers of a sweep that nobody disturbed."""
    signals, moments = KINDS[kind]
    begin = start if kind in STARTED else fork
    file, longest = whole_sweep[0], 1.1 * whole_sweep[1][begin]

    def command(number: int) -> list:
        return ["sweep", file, "--out", tmp_path / str(number), "--quiet"]

    all_ = lives(begin, signals, moments, longest, command)
    check(all_, signals)
    assert any(left.code for left in all_)
    scenario = load_scenario(file)
    whole = sweeping.sweep(scenario, file.with_name("whole")).load()
    for number in range(moments):
        folder = tmp_path / str(number)
        same(sweeping.sweep(scenario, folder), whole)
        assert len(list(folder.glob("models/*.pt"))) == len(whole["batch_size"])


SWALLOWED = """\
import os, signal

sent = []

def power(link):
    try:
        if not sent:
            sent.append(True)
            os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        pass
    raise {}
"""


@pytest.mark.parametrize("error", ["RuntimeError('half')", "UserError('half')", "OSError(13, '')"])
def test_what_a_library_makes_of_a_signal_is_not_told(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that a signal cut short fails at every later use, say."""
    monkeypatch.chdir(tmp_path)
    code = f"from otafl.core.errors import UserError\n{SWALLOWED.format(error)}"
    Path("cut.py").write_text(code)
    Path("short.yaml").write_text(f"{SCENARIO}channel: rayleigh\npower: cut:power\n")
    process = begin_guarded(fork, "sweep", "short.yaml", "--out", "out", "--quiet")
    said = process.communicate(timeout=240)[1]
    assert (process.returncode, said.count("\n")) == (130, 1), said
    assert said.startswith("otafl: interrupted")


COMMANDS = {
    "check": ["check", "short.yaml"],
    "list": ["list"],
    "show": ["show", "done"],
    "plot": ["plot", "done", "--hue", "batch_size", "--out", "figure.png"],
    "report": ["report", "done", "--out", "page.html"],
    "validate": ["validate", "--quick", "--only", "rayleigh", "--quiet"],
}


def test_every_command_is_interrupted_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short.yaml").write_text(SCENARIO)
    sweeping.sweep(load_scenario("short.yaml"), tmp_path / "done")
    for arguments in COMMANDS.values():
        longest, own = undisturbed(fork, *arguments)
        all_ = lives(fork, [signal.SIGINT], 3, longest, lambda _, words=arguments: words)
        check(all_, [signal.SIGINT], own)
        assert any(left.code for left in all_), arguments
