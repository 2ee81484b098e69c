"""Workers of this machine: programs that take jobs through a pipe each, and end with it.

Each pipe is a pair of sockets without a name that a worker inherits. There is no port, no file and
no certificate, so no other program can reach a worker. Each worker runs a program of its own
instead of the user's script, as multiprocessing's spawn would. So a script that starts a sweep
without a test of `__name__` does not start it again in every worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, BinaryIO

from otafl.core.errors import UserError
from otafl.core.program_variables import choose_variables
from otafl.sweeping.stack_job import Job, Outcome, Report

DEATHS = 4
"""Workers that a stack may kill before it counts as failed."""

END_S = 5.0
LOOK_EVERY_S = 0.5


class Worker:
    """One program that computes a job at a time.

    Parameters
    ----------
    environment : what its environment has besides this program's.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self.job: Job | None = None
        self.ready = False
        self._log: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  # its stderr until it is ready
        self.connection, theirs = Pipe()
        try:
            with theirs, _open_stderr() as stderr:
                self._process = _start(theirs.fileno(), stderr.fileno(), self._log, environment)
        except OSError:
            self.connection.close()
            self._log.close()
            raise

    @property
    def is_dead(self) -> bool:
        """Whether its program has ended, though a process that it left may hold the pipe."""
        return self._process.poll() is not None

    def submit(self, job: Job) -> None:
        """Send a job to the worker."""
        self.job = job
        with contextlib.suppress(OSError):  # it has just died, as will be seen
            self.connection.send(job)

    def receive(self) -> Any:
        """Return what it says next, None if it died."""
        if self.is_dead and not self.connection.poll():
            return None
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    def stop(self) -> str:
        """End the worker's program, if it lives, and describe how it ended.

        A worker ends when its pipe is closed.
        """
        self.connection.close()
        if not self.ready:  # it does not listen yet
            self._process.kill()
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        with self._log as log:
            log.seek(0)
            lines = log.read().decode(errors="replace").splitlines()
        how = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
        return how + (f": {lines[-1].strip()}" if lines and not self.ready else "")


class WorkerPool:
    """A number of workers, which are started again when they die.

    Parameters
    ----------
    num_workers : int
    num_shares : int, optional
        Equal parts of the processor's threads, of which each worker gets one; as many as there are
        workers if not given.
    tell : callable, optional
        Called with a sentence for each worker that is lost with a stack.
    """

    def __init__(
        self, num_workers: int, num_shares: int = 0, tell: Callable[[str], None] | None = None
    ) -> None:
        self._tell = tell or (lambda _: None)
        self._environments = _build_environments(max(num_workers, num_shares))[:num_workers]
        self._workers: list[Worker | None] = [None] * num_workers

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for worker in self._running_workers:
            worker.connection.close()  # they end at the same time
        for worker in self._running_workers:
            worker.stop()

    @property
    def _running_workers(self) -> list[Worker]:
        return [worker for worker in self._workers if worker is not None]

    def start(self) -> None:
        """Start the workers that do not run.

        They import what jobs need, so they begin sooner where this is called before the jobs are
        known; `run` calls it too.

        Raises
        ------
        UserError
            If the system refuses another program.
        """
        for number, worker in enumerate(self._workers):
            if worker is None:
                try:
                    self._workers[number] = Worker(self._environments[number])
                except OSError as error:
                    raise UserError(
                        f"--workers {len(self._workers)}: no worker can be started "
                        f"({error.strerror or error}); try fewer"
                    ) from error

    def run(self, jobs: Sequence[Job], report: Report) -> Iterator[Outcome]:
        """Yield outcomes as they come. The job of a worker that dies is given to another one.

        Raises
        ------
        UserError
            If a worker dies while it starts.
        """
        waiting, deaths = deque(jobs), Counter[int]()
        num_outcomes = 0
        while num_outcomes < len(jobs):
            self._submit(waiting)
            outcomes = [
                outcome
                for worker in self._wait_for_messages()
                if (outcome := self._take(worker, report, waiting, deaths)) is not None
            ]
            self._submit(waiting)  # before the outcomes are looked at, which takes a while
            num_outcomes += len(outcomes)
            yield from outcomes

    def _submit(self, waiting: deque[Job]) -> None:
        """Send jobs to the workers that have none."""
        if waiting:
            self.start()
        for worker in self._running_workers:
            if worker.ready and worker.job is None and waiting:
                worker.submit(waiting.popleft())

    def _wait_for_messages(self) -> list[Worker]:
        """Wait for workers that say something, or have died."""
        spoke = wait([worker.connection for worker in self._running_workers], LOOK_EVERY_S)
        return [one for one in self._running_workers if one.connection in spoke or one.is_dead]

    def _take(
        self, worker: Worker, report: Report, waiting: deque[Job], deaths: Counter[int]
    ) -> Outcome | None:
        """Take what a worker says; return the outcome of its job, if it is that."""
        said = worker.receive()
        if said == READY:
            worker.ready = True
        elif isinstance(said, Outcome):
            worker.job = None
            return said
        elif said is not None:
            report(*said)
        else:
            return self._replace_dead_worker(worker, waiting, deaths)
        return None

    def _replace_dead_worker(
        self, worker: Worker, waiting: deque[Job], deaths: Counter[int]
    ) -> Outcome | None:
        """Forget a worker that died, and have its job computed again, or else return its failure.

        Raises
        ------
        UserError
            If it had not taken jobs yet.
        """
        how = worker.stop()
        self._workers[self._workers.index(worker)] = None
        if not worker.ready:
            raise UserError(
                f"--workers {len(self._workers)}: a worker died while it started ({how}); fewer "
                "need less memory, and without --workers this program computes the stacks itself"
            )
        job = worker.job
        if job is None:
            return None
        number = job.stack.number
        deaths[number] += 1
        if deaths[number] < DEATHS:
            self._tell(
                f"a worker is lost ({how}); another one retries stack {number}, from its last "
                f"checkpoint (try {deaths[number] + 1} of {DEATHS})"
            )
            waiting.appendleft(job)
            return None
        text = f"every worker that computed it died (the last one with {how}); out of memory?"
        return Outcome(job, "failed", "other", text, text)


READY = "ready"
"""What a worker says first."""


def _open_stderr() -> BinaryIO:
    """Return another handle of this program's stderr, or of nothing where that is closed."""
    if sys.__stderr__ is None:  # handle 2 may be some other file by now
        return open(os.devnull, "wb", 0)
    return os.fdopen(os.dup(2), "wb", 0)


def _start(
    pipe: int, stderr: int, log: BinaryIO, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program with this program's module search path.

    It has a session of its own, so that Ctrl-C in a terminal reaches only this program.
    """
    code = (
        f"import sys; sys.path = {sys.path!r}; from otafl.sweeping.worker import main; "
        f"main({pipe}, {stderr}, {os.getpid()})"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stderr=log,
        env=os.environ | environment,
        pass_fds=(pipe, stderr),
        start_new_session=True,
    )


def _build_environments(workers: int) -> list[dict[str, str]]:
    """Return the environment variables of each worker that differ from this program's.

    They set its share of the processor's threads, at most those that the user allows a program.
    """
    share, stated = (os.cpu_count() or 1) // workers, os.environ.get("OMP_NUM_THREADS", "")
    most = int(stated) if stated.isdecimal() else share
    threads, gpus = str(max(1, min(share, most))), _list_gpus()
    shared = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": "1"}
    shared |= choose_variables()
    if not gpus:
        return [shared] * workers
    return [
        shared | {"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} for number in range(workers)
    ]


def _list_gpus() -> Sequence[str]:
    """Return what CUDA_VISIBLE_DEVICES would name each GPU that this program sees."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return named.split(",")[:count] if named else [str(number) for number in range(count)]
