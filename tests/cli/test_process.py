"""Signals end the program with one sentence and 130, 143 or 129; a second one is the system's."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from otafl import cli

pytestmark = pytest.mark.exact

HEAD = """\
import os, signal, sys, time
from otafl.cli import process

signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the tests' shell ignores
signal.signal(signal.SIGHUP, signal.SIG_DFL)

def send(number=signal.SIGINT):
    os.kill(os.getpid(), number)
"""
INTERRUPTED = "otafl: interrupted\n"


def run(command: str, before: str = "") -> tuple[int, str]:
    """The exit code and stderr of a program that runs this as its command."""
    body = "\n".join(f"    {line}" for line in command.splitlines())
    code = f"{HEAD}{before}\ndef command():\n{body}\nprocess.run(command)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_is_a_sentence_and_a_code(name: str, code: int) -> None:
    assert run(f"send(signal.{name}); time.sleep(20)") == (code, INTERRUPTED)


def test_what_is_kept_is_said() -> None:
    kept = "process.interruption.describe_kept_fn = lambda: 'two parts kept'\n"
    assert run(kept + "send()") == (130, "otafl: interrupted; two parts kept\n")
    broken = "process.interruption.describe_kept_fn = lambda: 1 / 0\n"
    assert run(broken + "send()") == (130, INTERRUPTED)


CAUGHT = """\
try:
    send()
    time.sleep(20)
except BaseException:
    {}
"""


@pytest.mark.parametrize("then", ["raise ImportError('half')", "pass"])
def test_what_a_library_makes_of_it_counts_as_the_signal(then: str) -> None:
    assert run(CAUGHT.format(then)) == (130, INTERRUPTED)


def test_a_second_signal_is_the_system_s_own() -> None:
    second = signal.SIGHUP
    saving = f"print('saving', file=sys.stderr, flush=True); send({int(second)}); time.sleep(20)"
    assert run(CAUGHT.format(saving)) == (-second, "saving\n")


def test_a_signal_after_the_command_is_ignored() -> None:
    """Also while the interpreter destroys the modules, when no handler in Python is called."""
    assert run("import atexit; atexit.register(send)") == (0, "")
    last = "class Last:\n    __del__ = lambda self, send=send: send()\nsys.last = Last()\n"
    assert run("pass", last) == (0, "")


def test_a_signal_that_was_ignored_stays_so() -> None:
    """As in a shell's background job, or below `nohup`."""
    ignored = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    assert run("send(signal.SIGHUP); time.sleep(0.1)", ignored) == (0, "")


def test_a_program_that_calls_a_command_has_its_own_process() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(one) for one in numbers], sys.stdout.errors, list(sys.path)
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert before == ([signal.getsignal(one) for one in numbers], sys.stdout.errors, sys.path)
