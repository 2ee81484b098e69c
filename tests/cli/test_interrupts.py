"""Signals end the program with one sentence and 130 or 143, wherever they fall: here one by one at
the places that are hard, in programs that import nothing of weight."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from otafl import cli

pytestmark = pytest.mark.exact

HEAD = """\
import atexit, os, signal, sys, threading, time, weakref
from otafl.cli.interrupts import guard

signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the tests' shell ignores
signal.signal(signal.SIGHUP, signal.SIG_DFL)

def send(number=signal.SIGINT):
    os.kill(os.getpid(), number)
"""
INTERRUPTED = "otafl: interrupted\n"
AT_ONCE = "otafl: interrupted{}; ended at once, the files that were written are whole\n"


def run(command: str, before: str = "") -> tuple[int, str]:
    """The exit code and stderr of a program that runs this as its command."""
    body = "\n".join(f"    {line}" for line in command.splitlines())
    code = f"{HEAD}{before}\ndef command():\n{body}\nguard.run(command)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_a_signal_is_a_sentence_and_a_code() -> None:
    assert run("send(); time.sleep(20)") == (130, INTERRUPTED)
    assert run("send(signal.SIGTERM); time.sleep(20)") == (143, INTERRUPTED)
    assert run("send(signal.SIGHUP); time.sleep(20)") == (129, INTERRUPTED)


def test_what_is_kept_is_said() -> None:
    kept = "guard.describe_kept_fn = lambda: 'two parts kept'\n"
    assert run(kept + "send()") == (130, "otafl: interrupted; two parts kept\n")
    broken = "guard.describe_kept_fn = lambda: 1 / 0\n"
    assert run(broken + "send()") == (130, INTERRUPTED)


CALLED_BACK = """\
class Thing: pass
thing = Thing()
reference = weakref.ref(thing, lambda _: (send(), None))
del thing
time.sleep(20)
"""
DESTROYED = """\
class Thing:
    def __del__(self):
        send()
Thing()
time.sleep(20)
"""


@pytest.mark.parametrize("command", [CALLED_BACK, DESTROYED], ids=["weakref", "destructor"])
def test_what_cannot_be_raised_is_raised_soon_after(command: str) -> None:
    assert run(command) == (130, INTERRUPTED)


CAUGHT = """\
try:
    send()
    time.sleep(20)
except BaseException:
    {}
"""


@pytest.mark.parametrize(
    "then",
    [
        "raise ImportError('half')",
        "sys.exit(1)",
        "pass",
        "time.sleep(0.05); guard.check(); time.sleep(20)",
    ],
    ids=["another", "exit", "nothing", "work"],
)
def test_what_somebody_catches_counts_all_the_same(then: str) -> None:
    """Whether it becomes another error, is forgotten, or the work goes on."""
    assert run(CAUGHT.format(then)) == (130, INTERRUPTED)


def test_an_import_is_not_cut_short(tmp_path: Path) -> None:
    """The C++ of a library that starts may end the program at an exception."""
    (tmp_path / "library.py").write_text(
        "import os, signal, sys, time\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(0.1)\n"
        "print('whole', file=sys.stderr)\n"
    )
    command = f"sys.path.append({str(tmp_path)!r})\nimport library\ntime.sleep(20)"
    assert run(command) == (143, "whole\n" + INTERRUPTED)


@pytest.mark.slow
def test_an_import_that_goes_on_is_not_waited_for(tmp_path: Path) -> None:
    """The program ends within two seconds of the signal, and says what is kept."""
    (tmp_path / "library.py").write_text(
        "import os, signal, sys, time\n"
        "sys.began = time.monotonic()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "while time.monotonic() < sys.began + 30:\n"
        "    time.sleep(0.01)\n"
    )
    command = f"sys.path.append({str(tmp_path)!r})\nimport library"
    said = "guard.describe_kept_fn = lambda: f'{time.monotonic() - sys.began < 2}'"
    assert run(command, said) == (129, "otafl: interrupted; True\n")


def test_other_threads_are_not_interrupted() -> None:
    thread = "one = threading.Thread(target=guard.check); one.start(); one.join(); print('went on')"
    assert run(CAUGHT.format(thread)) == (130, INTERRUPTED)


def test_text_that_is_evaluated_does_not_change_how_the_program_ends() -> None:
    """CPython would die of SIGINT."""
    assert run("eval('send() or time.sleep(20)')") == (130, INTERRUPTED)


SECOND = "print('keeping', file=sys.stderr, flush=True); time.sleep({}); send({}); time.sleep(0.1)"
SAID = "; print('kept', file=sys.stderr)"


@pytest.mark.slow
def test_a_second_signal_ends_at_once() -> None:
    second = SECOND.format(0.6, "") + SAID
    assert run(CAUGHT.format(second)) == (130, "keeping\n" + AT_ONCE.format(" again"))
    second = SECOND.format(0.6, "signal.SIGTERM") + SAID
    assert run(CAUGHT.format(second)) == (143, "keeping\n" + AT_ONCE.format(" again"))


def test_a_signal_sent_twice_at_a_time_is_one() -> None:
    """As `timeout` does: to the program, and to its group."""
    second = SECOND.format(0.01, "") + SAID
    assert run(CAUGHT.format(second)) == (130, "keeping\nkept\n" + INTERRUPTED)


LATE = "threading.Thread(target=lambda: (time.sleep(0.1), send(), time.sleep(20))).start()"


@pytest.mark.parametrize(
    "command", ["atexit.register(send)", LATE], ids=["exit function", "waiting for a thread"]
)
def test_a_signal_while_the_program_leaves(command: str) -> None:
    assert run(command) == (130, AT_ONCE.format(""))


def test_a_signal_when_there_is_nothing_left_to_interrupt() -> None:
    """The modules are torn down, and the command has done what it should."""
    last = "class Last:\n    __del__ = lambda self, send=send: send()\nsys.last = Last()\n"
    assert run("pass", last) == (0, "")


def test_what_an_interruption_tears_down_tells_nothing() -> None:
    torn = "class Torn:\n    def __del__(self):\n        raise AttributeError('half made')\n"
    assert run(torn + "torn = Torn()\nsend()") == (130, INTERRUPTED)
    code, said = run(torn + "Torn()")
    assert code == 0
    assert "half made" in said


@pytest.mark.parametrize("number", ["signal.SIGINT", "signal.SIGTERM", "signal.SIGHUP"])
def test_a_signal_that_was_ignored_stays_so(number: str) -> None:
    """As in a shell's background job, or below `nohup`."""
    ignored = f"signal.signal({number}, signal.SIG_IGN)"
    assert run(f"send({number}); time.sleep(0.1)", ignored) == (0, "")


def test_a_program_that_calls_a_command_has_its_own_signals() -> None:
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)], sys.unraisablehook
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    after = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)], sys.unraisablehook
    assert after == before
