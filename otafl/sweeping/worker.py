"""The program of a worker of `local`: it takes jobs through a pipe, and ends when that closes."""

from __future__ import annotations

import os
import queue
import signal
import threading
from multiprocessing.connection import Connection
from typing import Any

from otafl.sweeping.local import READY
from otafl.sweeping.stack_job import Job, run_remote_job

LOOK_EVERY_S = 1.0


def main(pipe: int, stderr: int, parent: int) -> None:
    """Compute jobs until the program that started this one ends, however it does.

    Parameters
    ----------
    pipe : handle of this end of the pipe.
    stderr : handle of what becomes stderr now that the worker has started.
    parent : number of the process that started this one.
    """
    for number in (signal.SIGINT, signal.SIGHUP):  # the parent decides
        signal.signal(number, signal.SIG_IGN)
    os.set_inheritable(pipe, False)
    connection, jobs = Connection(pipe), queue.SimpleQueue[Job]()
    threading.Thread(target=_listen, args=(connection, jobs, parent), daemon=True).start()
    os.dup2(stderr, 2)
    os.close(stderr)
    _send(connection, READY)
    while True:
        outcome = run_remote_job(jobs.get(), lambda *rounds: _send(connection, rounds))
        _send(connection, outcome)


def _listen(connection: Connection, jobs: queue.SimpleQueue[Job], parent: int) -> None:
    """Receive jobs; end this program, though a job may still run, when the parent has ended.

    The parent is looked at too: a process that it forked may hold its end of the pipe.
    """
    try:
        while True:
            while not connection.poll(LOOK_EVERY_S):
                if os.getppid() != parent:
                    os._exit(0)
            jobs.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)


def _send(connection: Connection, message: Any) -> None:
    """Send a message; end this program if the connection is closed."""
    try:
        connection.send(message)
    except OSError:
        os._exit(0)
