"""Signals that a command gets while it computes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.programs import run
from support.stopped_sweeps import same

from otafl import open_results

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("signals_arrive")]

SCENARIO = """\
name: short
data: {name: digits, train_samples: 300}
model: {name: mlp, hidden: [4]}
devices: {count: 4}
training: {rounds: 4, eval_samples: 40}
trials: 2
engine: {device: cpu, threads: 1}
output: {save_models: true}
power: "cut:power"
sweep: {training.batch_size: [2, 3, 4]}
"""

SENDS = """\
import os
from pathlib import Path

from otafl.core.errors import UserError

calls = []

def power(link):
    calls.append(True)
    try:
        if len(calls) == 6 and not Path("sent").exists():
            Path("sent").touch()
            os.kill(os.getpid(), SIGNAL)
    except BaseException:
        ERROR
    p = (link.budget[:, None] / link.symbol_power).sqrt() + 0.0 * link.h
    return p, (p * link.h).abs().mean(-1).square()
"""
"""A policy that sends a signal to its own process, once. What it raises is passed on, or becomes an
error, as an import that a signal cut short fails at every later use."""


COMMAND = ("-m", "otafl.cli", "sweep", "short.yaml", "--quiet", "--out")


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (signal.SIGINT, "raise"),
        (signal.SIGTERM, "raise UserError('half')"),
    ],
)
def test_a_sweep_ends_with_a_sentence_and_goes_on(
    number: signal.Signals, error: str, tmp_path: Path
) -> None:
    """The same command ends with the numbers of a sweep that nobody disturbed."""
    policy = SENDS.replace("SIGNAL", str(int(number))).replace("ERROR", error)
    (tmp_path / "cut.py").write_text(policy)
    (tmp_path / "short.yaml").write_text(SCENARIO)
    said = run(*COMMAND, "out", cwd=tmp_path)
    assert said.returncode == 128 + number, said.stderr
    assert said.stderr.splitlines()[-1].startswith("otafl: interrupted"), said.stderr
    assert said.stderr.count("\n") == 1 or error != "raise", said.stderr
    for folder in ("out", "whole"):
        done = run(*COMMAND, folder, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    same(*(open_results(tmp_path / folder) for folder in ("out", "whole")))
    assert len(list((tmp_path / "out" / "models").glob("*.pt"))) == 3
