"""Programs that begin with their imports done, as forks of one process that did nothing else.

A test starts a command with `Program` or `run` as it would with `subprocess`. The command is a
process of its own, with its own signals, files, environment, working directory and exit. But it
does not import PyTorch, xarray and otafl again, which takes most of the time of a short command. A
test of the start itself (imports, options and variables of the interpreter, the installed command),
or of the last moments of an interpreter, uses `subprocess`.

The process that is forked is this file as a program. It begins with the first command of a test
process, and ends with that process. It computes nothing and has one thread.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NoReturn

_ENVIRONMENT = dict(os.environ)
_SET_IN_BOTH = ("PYTHONPATH", "NUMBA_CACHE_DIR", "NUMBA_CACHE_LOCATOR_CLASSES")
"""Variables that `_preload` sets as otafl does, and the search path, which is replaced."""

_READ_AT_START = (
    *("PYTHON", "OMP_NUM_THREADS", "CUDA_", "NUMBA_", "MPL", "DASK_"),
    *("LANG", "LC_", "TZ"),
)
"""First letters of the variables that the interpreter or a library reads when it is loaded."""

_INHERITED = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
"""Signals that a program ignores where the test does."""

_LATER = (
    *("PIL.Image", "dask.array", "distributed", "netCDF4", "rich.progress"),
    *("scipy.io", "sklearn.datasets"),
)
"""What functions import, and what runs functions of otafl."""

_FORKED_THREADS = {"jemalloc_bg_thd"}
"""Threads that their library (pyarrow) starts again in a fork."""

_SIZE = 2**20


class Program:
    """A running command of the interpreter, with the interface of `subprocess.Popen` for text.

    Parameters
    ----------
    *command : object
        What follows `python` on a command line: `-m MODULE`, `-c CODE` or a file, and arguments.
    cwd, env, stdout, stderr, start_new_session
        As those of `subprocess.Popen`. `PIPE` is a file here, so the program never waits for its
        reader.
    files : mapping of int to int
        Further descriptors of the program, and the ones of this process that they are copies of.
    """

    def __init__(
        self,
        *command: object,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: int | BinaryIO | None = None,
        stderr: int | BinaryIO | None = None,
        start_new_session: bool = False,
        files: Mapping[int, int] | None = None,
    ) -> None:
        environment = dict(os.environ if env is None else env)
        for name, _ in environment.items() ^ _ENVIRONMENT.items():
            if name.startswith(_READ_AT_START) and name not in _SET_IN_BOTH:
                raise ValueError(f"{name} is read when a program starts; use subprocess")
        self.args = [str(one) for one in command]
        self.returncode: int | None = None
        self._captured: dict[int, BinaryIO] = {}
        self._said: dict[int, str] = {}
        given: dict[int, Any] = {0: subprocess.DEVNULL, 1: stdout, 2: stderr} | dict(files or {})
        with open(os.devnull, "r+b") as nothing:
            for number, stream in given.items():
                if stream is None:
                    given[number] = number
                elif stream == subprocess.DEVNULL:
                    given[number] = nothing
                elif stream == subprocess.PIPE:
                    given[number] = self._captured[number] = tempfile.TemporaryFile()  # noqa: SIM115
            request = {
                "command": self.args,
                "cwd": os.fspath(cwd or Path.cwd()),
                "environment": environment,
                "new_session": start_new_session,
                "ignored": [one for one in _INHERITED if signal.getsignal(one) is signal.SIG_IGN],
                "files": list(given),
            }
            self.pid = _server.ask(request, [_get_descriptor(one) for one in given.values()])
        self._ended = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Return the exit code, as `Popen.poll` does, or None."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code as soon as the program has ended."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return all that the program has written to those of its streams that are pipes."""
        self.wait(timeout)
        for number, file in self._captured.items():
            with file:
                file.seek(0)
                self._said[number] = file.read().decode()
        self._captured.clear()
        return self._said.get(1, ""), self._said.get(2, "")

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the program."""
        self.send_signal(signal.SIGKILL)

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            os.close(self._ended)
            status = _server.ask({"reap": self.pid}, [])
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


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
    assert program.returncode is not None
    return subprocess.CompletedProcess(program.args, program.returncode, stdout, stderr)


def _get_descriptor(stream: int | BinaryIO) -> int:
    return stream if isinstance(stream, int) else stream.fileno()


class _Server:
    """The process that is forked, seen from the test process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def ask(self, request: dict[str, Any], files: list[int]) -> int:
        """Return the number that the server answers."""
        with self._lock:
            if self._socket is None:
                self._socket = self._start()
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            answer = self._socket.recv(_SIZE)
        assert answer, "the process that is forked has ended; stderr says why"
        return int(answer)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=_ENVIRONMENT,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(process.wait)
        atexit.register(ours.close)  # which ends it
        return ours


_server = _Server()


def _serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork a program for each request, and return the request there; None at the end."""
    while True:
        message, files, _, _ = socket.recv_fds(control, _SIZE, 64)
        if not message:
            return None
        request: dict[str, Any] = json.loads(message)
        if "reap" in request:
            answer = os.waitpid(request["reap"], 0)[1]
        else:
            answer = os.fork()
            if not answer:
                control.close()
                _place_files(dict(zip(request["files"], files, strict=True)))
                return request
        for one in files:
            os.close(one)
        control.send(str(answer).encode())


def _place_files(files: dict[int, int]) -> None:
    """Give descriptors the numbers that they shall have."""
    above = {
        number: fcntl.fcntl(one, fcntl.F_DUPFD, max(files) + 1) for number, one in files.items()
    }
    for one in files.values():
        os.close(one)
    for number, one in above.items():
        os.dup2(one, number)
        os.close(one)


def _preload() -> None:
    """Import all of otafl that needs no optional package."""
    import otafl
    from otafl.core.program_variables import choose_variables

    os.environ.update(choose_variables())  # as the command does before its imports
    package = Path(otafl.__path__[0])
    for file in sorted(package.rglob("*.py")):
        name, *rest = file.relative_to(package.parent).with_suffix("").parts
        if file.stem != "__main__" and rest[0] != "flower":
            importlib.import_module(".".join((name, *rest)).removesuffix(".__init__"))
    for name in _LATER:
        importlib.import_module(name)


def _begin(request: dict[str, Any]) -> None:
    """Make this process what a program is when Python has just started."""
    import numpy as np
    import torch

    if request["new_session"]:
        os.setsid()
    for number in _INHERITED:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    np.random.seed()  # noqa: NPY002  # a fork seeds only Python's own generator anew
    torch.default_generator.seed()


def _run(command: list[str], path: list[str]) -> None:
    """Run what follows `python` on a command line, with the folders of modules besides its own."""
    import otafl

    kind, *rest = command
    first = {"-m": os.getcwd(), "-c": ""}.get(kind, os.path.dirname(os.path.realpath(kind)))
    sys.path[:] = [first, *_list_own_folders(), *path]
    found = PathFinder.find_spec("otafl")
    if found is None or os.path.realpath(found.origin or "") != os.path.realpath(otafl.__file__):
        sys.exit(f"the program would not import {otafl.__file__}; use subprocess")
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


def _list_own_folders() -> list[str]:
    """List the folders of PYTHONPATH."""
    return [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]


def _leave(code: object) -> NoReturn:
    """Leave as the interpreter does, except that it does not take its modules apart.

    That takes a third of a second, since the parent's memory is copied for it.
    """
    if isinstance(code, str):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(code if isinstance(code, int) else bool(code))


def _main() -> None:
    for number in _INHERITED:  # the tests end it
        signal.signal(number, signal.SIG_IGN)
    del sys.path[0]  # the folder of this file
    path = [one for one in sys.path if one not in _list_own_folders()]
    _preload()
    threads = [one.read_text().strip() for one in Path("/proc/self/task").glob("[0-9]*/comm")]
    if sum(one not in _FORKED_THREADS for one in threads) != 1:
        sys.exit(f"imports have started threads, which a fork would not have: {threads}")
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as control:
        request = _serve(control)
    if request is not None:
        _begin(request)
        code: object = None
        try:
            _run(request["command"], path)
        except SystemExit as left:
            code = left.code
        _leave(code)


if __name__ == "__main__":
    _main()
