"""Signals at many moments of a short command, from the first on at which the command line can do
something about them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from support.programs import Program
from support.stopped_sweeps import same

from otafl import sweeping
from otafl.scenario import load_scenario

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("signals_arrive")]

SCENARIO = """\
name: short
data: {name: digits, train_samples: 300}
model: {name: mlp, hidden: [4]}
devices: {count: 4}
training: {rounds: 40, eval_every: 10, local_steps: 2, eval_samples: 40}
trials: 2
engine: {device: cpu, threads: 1}
output: {save_models: true}
sweep: {training.batch_size: [2, 3, 4, 5]}
"""

AGAIN_S = 0.6
"""Between two signals that are two."""

MOMENTS = int(os.environ.get("OTAFL_TEST_MOMENTS", "2"))
"""At which a sweep is interrupted; more take longer and see more."""

Running = subprocess.Popen | Program
Begin = Callable[..., Running]


def start(*arguments: object) -> subprocess.Popen:
    """A command that Python starts, so that some signals fall among imports."""
    return subprocess.Popen(
        [sys.executable, "-m", "otafl.cli", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def fork(*arguments: object) -> Program:
    """A command that begins with its imports done, so that all moments fall into its work."""
    return Program(
        *("-m", "otafl.cli", *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def begin_guarded(begin: Begin, *arguments: object) -> Running:
    """A command that catches SIGTERM by now, or has ended."""
    process = begin(*arguments)
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        found = re.search(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)
        if found and int(found[1], 16) >> (signal.SIGTERM - 1) & 1:
            break
        time.sleep(0.001)
    return process


def run(begin: Begin, *arguments: object) -> tuple[float, str]:
    """How long a command takes that nobody disturbs, and what it says on stderr."""
    process = begin_guarded(begin, *arguments)
    began = time.monotonic()
    said = process.communicate(timeout=600)[1]
    assert process.returncode == 0, said
    return time.monotonic() - began, said


def disturb(
    begin: Begin,
    signals: Sequence[signal.Signals],
    moment: float,
    *arguments: object,
    own: str = "",
) -> bool:
    """Whether signals end a command: with sentences and the code of the first of them.

    It may have nothing left to do. own: what it says on stderr by itself.
    """
    process = begin_guarded(begin, *arguments)
    time.sleep(moment)
    process.send_signal(signals[0])
    for _, other in pairwise(signals):
        time.sleep(AGAIN_S)
        process.send_signal(other)
    said = process.communicate(timeout=600)[1]
    for line in own.splitlines(keepends=True):
        said = said.removeprefix(line)
    if process.returncode == 0:
        assert said == "", moment
        return False
    assert process.returncode in (128 + signals[0], *(-number for number in signals[1:])), said
    sentence = re.search(r"^otafl: interrupted[^\n]*\n\Z", said, re.MULTILINE)
    assert sentence or process.returncode < 0, (moment, said)  # the second one is the system's own
    assert "Traceback" not in said or "Exception ignored" in said, (moment, said)
    return True


@pytest.mark.parametrize(
    ("begin", "signals"),
    [
        (start, [signal.SIGINT]),
        (start, [signal.SIGINT, signal.SIGINT]),
        (fork, [signal.SIGINT]),
        (fork, [signal.SIGTERM]),
        (fork, [signal.SIGHUP]),
    ],
)
def test_a_sweep_is_interrupted_at_any_moment(
    begin: Begin, signals: Sequence[signal.Signals], tmp_path: Path
) -> None:
    """The same command goes on to the numbers of a sweep that nobody disturbed."""
    file = tmp_path / "short.yaml"
    file.write_text(SCENARIO)
    longest, _ = run(begin, "sweep", file, "--out", tmp_path / "whole", "--quiet")
    folders = [tmp_path / str(number) for number in range(MOMENTS)]
    ended = [
        disturb(
            *(begin, signals, 0.9 * longest * place / MOMENTS),
            *("sweep", file, "--out", folder, "--quiet"),
        )
        for place, folder in enumerate(folders)
    ]
    assert any(ended)
    scenario = load_scenario(file)
    whole = sweeping.sweep(scenario, tmp_path / "whole").load()
    for folder in folders:
        same(sweeping.sweep(scenario, folder), whole)
        assert len(list(folder.glob("models/*.pt"))) == 4


SWALLOWED = """\
import os, signal
from otafl.core.errors import UserError

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


@pytest.mark.parametrize("error", ["RuntimeError('half')", "UserError('half')"])
def test_what_a_library_makes_of_a_signal_is_not_told(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that a signal cut short fails at every later use, say."""
    monkeypatch.chdir(tmp_path)
    Path("cut.py").write_text(SWALLOWED.format(error))
    Path("short.yaml").write_text(f"{SCENARIO}channel: rayleigh\npower: cut:power\n")
    process = fork("sweep", "short.yaml", "--out", "out", "--quiet")
    said = process.communicate(timeout=600)[1]
    assert (process.returncode, said.count("\n")) == (130, 1), said
    assert said.startswith("otafl: interrupted")


COMMANDS = [
    ["check", "short.yaml"],
    ["show", "done"],
    ["plot", "done", "--hue", "batch_size", "--out", "figure.png"],
    ["report", "done", "--out", "page.html"],
    ["validate", "--quick", "--only", "rayleigh", "--quiet"],
]


def test_every_command_is_interrupted_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short.yaml").write_text(SCENARIO)
    sweeping.sweep(load_scenario("short.yaml"), tmp_path / "done")
    for arguments in COMMANDS:
        longest, own = run(fork, *arguments)
        moments = (0.0, 0.3 * longest, 0.6 * longest)
        ended = [disturb(fork, [signal.SIGINT], one, *arguments, own=own) for one in moments]
        assert any(ended), arguments
