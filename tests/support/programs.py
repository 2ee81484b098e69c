"""Programs that begin with their imports done, as forks of one process that did nothing else.

A test starts a command with `Program` or `run` as it would with `subprocess`. The command is a
process of its own, with its own signals, files, environment, working directory and exit. But it
does not import PyTorch, xarray and otafl again, which takes most of the time of a short command. A
test of the start itself (imports, options and variables of the interpreter, the installed command),
or of the last moments of an interpreter, uses `subprocess`.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import otafl

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        ".".join(file.relative_to(Path(otafl.__path__[0]).parent).with_suffix("").parts)
        for file in sorted(Path(otafl.__path__[0]).rglob("*.py"))
        if file.stem not in ("__init__", "__main__") and "flower" not in file.parts
    ]
    + ["PIL.Image", "distributed", "rich.progress", "scipy.io", "sklearn.datasets"]
)


class Program:
    """A running command of the interpreter, with the interface of `subprocess.Popen` for text.

    Parameters
    ----------
    *command : object
        What follows `python` on a command line: `-m MODULE`, `-c CODE` or a file, and arguments.
    cwd, env, stdout, stderr, start_new_session
        As those of `subprocess.Popen`. `PIPE` is a file here, so the program never waits for its
        reader.
    """

    def __init__(
        self,
        *command: object,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: int | BinaryIO | None = None,
        stderr: int | BinaryIO | None = None,
        start_new_session: bool = False,
    ) -> None:
        self.args = [str(one) for one in command]
        self._captured: dict[int, Any] = {}
        self._said: dict[int, str] = {}
        names: dict[int, str] = {0: os.devnull}
        for number, stream in ((1, stdout), (2, stderr)):
            if stream == subprocess.PIPE:
                self._captured[number] = tempfile.NamedTemporaryFile()  # noqa: SIM115
                names[number] = self._captured[number].name
            elif stream == subprocess.DEVNULL:
                names[number] = os.devnull
            elif stream is not None and not isinstance(stream, int):
                names[number] = stream.name
        environment = dict(os.environ if env is None else env)
        place = str(cwd or Path.cwd())
        self._process = FORKS.Process(
            target=_run, args=(self.args, place, environment, names, start_new_session)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code, as `Popen.poll` does, or None."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code as soon as the program has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return all that the program has written to those of its streams that are pipes."""
        self.wait(timeout)
        for number, file in self._captured.items():
            with file:
                self._said[number] = file.read().decode()
        self._captured.clear()
        return self._said.get(1, ""), self._said.get(2, "")

    def kill(self) -> None:
        """Kill the program, unless it is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def run(
    *command: object, timeout: float | None = 600.0, **keywords: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and return what it wrote, as `subprocess.run` does."""
    keywords = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | keywords
    program = Program(*command, **keywords)
    try:
        stdout, stderr = program.communicate(timeout)
    finally:
        program.kill()
    return subprocess.CompletedProcess(program.args, program.wait(), stdout, stderr)


def _run(
    command: list[str],
    cwd: str,
    environment: dict[str, str],
    streams: dict[int, str],
    start_new_session: bool,
) -> None:
    """Make this process what a program is when Python has just started, and run the command."""
    if start_new_session:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for number, name in streams.items():
        file = os.open(name, os.O_RDWR | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    kind, *rest = command
    first = {"-m": cwd, "-c": ""}.get(kind, os.path.dirname(os.path.realpath(kind)))
    sys.path[:0] = [first, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    if kind == "-m":
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv[:] = [kind, *rest[1:]]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(rest[0], main.__dict__)
    else:
        sys.argv[:] = command
        runpy.run_path(kind, run_name="__main__")
