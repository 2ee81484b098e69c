"""Workers of this machine: programs that compute a stack at a time, and end with this one.

Each has an executor of its own, so that one that dies takes no other's work with it. They are
started by loky, which does not run the user's script again in them, as `multiprocessing` would.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import TracebackType

import torch
from loky import ProcessPoolExecutor

from otafl.core.program_variables import choose_variables
from otafl.sweeping.stack_job import Job, Outcome, Report, run_remote_job

DEATHS = 4
"""Workers that a stack may kill before it counts as failed."""
LOOK_EVERY_S = 0.2
IDLE_S = 5.0

_to_parent: Connection
"""End of the pipe through which a worker reports to its parent; set in workers only."""


class Worker:
    """A program that computes a job at a time, and is started again when it has died.

    Parameters
    ----------
    environment : what its environment has besides this program's.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self._reports, theirs = Pipe(duplex=False)
        with _keep_signals_here():
            self._executor = ProcessPoolExecutor(
                max_workers=1,
                timeout=IDLE_S,
                initializer=_begin,
                initargs=(theirs, os.getpid()),
                env=environment,
            )

    def submit(self, job: Job, waits: bool) -> Future[Outcome]:
        """Submit a job to the worker."""
        with _keep_signals_here():
            future: Future[Outcome] = self._executor.submit(_run_job, job, waits)
        return future

    def forward(self, report: Report) -> None:
        """Pass on what the worker has reported."""
        while self._reports.poll():
            report(*self._reports.recv())

    def kill(self) -> None:
        """End the program, though a job may run."""
        self._executor.shutdown(kill_workers=True)
        self._reports.close()


class WorkerPool:
    """A number of workers, among which the threads of the processor are shared.

    Parameters
    ----------
    num_workers : int
    num_shares : int
        Equal parts of the processor's threads, of which each worker gets one.
    tell : callable
        Called with a sentence for each worker that is lost with a stack.
    """

    def __init__(self, num_workers: int, num_shares: int, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._environments = _build_environments(num_shares)[:num_workers]
        self._workers: list[Worker | None] = [None] * num_workers

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            if worker is not None:
                worker.kill()

    def run(self, jobs: Sequence[Job], report: Report, waits: bool) -> Iterator[Outcome]:
        """Yield outcomes as they come. The job of a worker that dies is given to another one."""
        waiting, deaths = deque(jobs), Counter[str]()
        running: dict[Future[Outcome], tuple[int, Job]] = {}
        while waiting or running:
            taken = {place for place, _ in running.values()}
            for place in set(range(len(self._workers))) - taken:
                if waiting:
                    job = waiting.popleft()
                    running[self._get(place).submit(job, waits)] = place, job
            done, _ = wait(running, LOOK_EVERY_S, FIRST_COMPLETED)
            for place, _ in running.values():
                self._get(place).forward(report)
            for future in done:
                place, job = running.pop(future)
                error = future.exception()
                if error is None:
                    yield future.result()
                elif isinstance(error, BrokenProcessPool) and self._is_tried_again(job, deaths):
                    self._drop(place)
                    waiting.appendleft(job)
                else:
                    self._drop(place)
                    yield _make_failure(job, error)

    def _get(self, place: int) -> Worker:
        """Return the worker of a place, which is started if there is none."""
        worker = self._workers[place]
        if worker is None:
            worker = self._workers[place] = Worker(self._environments[place])
        return worker

    def _drop(self, place: int) -> None:
        """Forget the worker of a place, which has died."""
        self._get(place).kill()
        self._workers[place] = None

    def _is_tried_again(self, job: Job, deaths: Counter[str]) -> bool:
        """Count a worker that died with a job, and return whether another one gets the job."""
        deaths[job.stack.name] += 1
        tries = deaths[job.stack.name] + 1
        if tries <= DEATHS:
            self._tell(
                f"a worker is lost (killed, or out of memory); another one retries stack "
                f"{job.stack.name}, from its last checkpoint (try {tries} of {DEATHS})"
            )
        return tries <= DEATHS


def _make_failure(job: Job, error: BaseException) -> Outcome:
    """Return the outcome of a job whose worker could not say one."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, BrokenProcessPool):
        text = "every worker that computed it died (killed, or out of memory); try fewer workers"
    return Outcome(job, "failed", "other", text, text)


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
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return named.split(",")[:count] if named else [str(number) for number in range(count)]


@contextlib.contextmanager
def _keep_signals_here() -> Iterator[None]:
    """Leave Ctrl-C in a terminal to this program, not to those that are started meanwhile."""
    # trick: they inherit the mask from their first moment on
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(to_parent: Connection, parent: int) -> None:
    """Begin in a worker: end with the parent, however it ends."""
    global _to_parent
    _to_parent = to_parent
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    """End this program within a second of its parent, though a job may run."""
    while not threading.Event().wait(1.0):
        if os.getppid() != parent:
            os._exit(1)  # trick: nobody is left who could take an error or a result


def _run_job(job: Job, waits: bool) -> Outcome:
    """Carry out a job in a worker."""
    return run_remote_job(job, lambda *rounds: _to_parent.send(rounds), waits)
