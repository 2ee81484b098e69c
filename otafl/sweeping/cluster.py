"""Have jobs carried out by Dask workers: programs of this machine, or of a cluster.

A worker computes one stack at a time and writes its file itself, so a client that dies takes
nothing finished with it. A worker that dies has its stack computed by another one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from otafl.core.errors import UserError
from otafl.sweeping.executing import Execute
from otafl.sweeping.working import Job, Outcome, Report, work

TOPIC = "otafl"
REPORT_EVERY_S = 0.5
LOOK_EVERY_S = 0.05
CONNECT_S = 10
WORKERS_S = 60


@contextlib.contextmanager
def on_this_machine(workers: int) -> Iterator[Execute]:
    """Start so many workers, which share the processor's threads; with GPUs, each has one, in
    turn."""
    from distributed import Client, Nanny, Scheduler, SpecCluster

    threads = max(1, (os.cpu_count() or 1) // workers)
    gpus = _gpus()
    with _quiet(), tempfile.TemporaryDirectory(prefix="otafl-workers-") as scratch:
        options: dict[str, Any] = {
            "nthreads": 1,
            "memory_limit": 0,
            "local_directory": scratch,
            "silence_logs": logging.CRITICAL,
            "dashboard": False,
        }
        specification = {
            number: {
                "cls": Nanny,
                "options": options | {"env": _environment(number, threads, gpus)},
            }
            for number in range(workers)
        }
        scheduler = {"cls": Scheduler, "options": {"dashboard": False, "host": "127.0.0.1"}}
        with (
            SpecCluster(specification, scheduler=scheduler, silence_logs=logging.CRITICAL) as all_,
            Client(all_, set_as_default=False) as client,
        ):
            yield partial(_by_workers, client, "the workers of this machine")


@contextlib.contextmanager
def of_scheduler(address: str) -> Iterator[Execute]:
    """Take the workers of a Dask scheduler (its address, or the file that it writes), which go on
    with what they have if the client ends. Raises UserError where none answers, or none has
    come."""
    from distributed import Client

    found = _answering(address)
    with _quiet():
        try:
            client = Client(found, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise _silent(address) from error
        with client:
            try:
                client.wait_for_workers(1, timeout=WORKERS_S)
            except TimeoutError as error:
                raise UserError(
                    f"--scheduler {address}: no worker came in {WORKERS_S} s; `dask worker "
                    f"{address}` starts one"
                ) from error
            yield partial(_by_workers, client, f"the scheduler {address}")


def _answering(address: str) -> str:
    """Return the address, or that in a scheduler's file, once something listens there."""
    found = address
    try:
        if address.endswith(".json"):
            found = json.loads(Path(address).read_text())["address"]
        parts = urlsplit(found)
        if not (parts.hostname and parts.port):
            raise UserError(
                f"--scheduler {address}: must be an address like tcp://10.0.0.5:8786, or the .json "
                "file that `dask scheduler --scheduler-file` writes"
            )
        socket.create_connection((parts.hostname, parts.port), CONNECT_S).close()
    except (OSError, ValueError, KeyError) as error:
        raise _silent(address) from error
    return found


def _silent(address: str) -> UserError:
    return UserError(
        f"--scheduler {address}: no Dask scheduler answers there; `dask scheduler` starts one and "
        "prints its address"
    )


def _by_workers(client: Any, where: str, jobs: Sequence[Job], report: Report) -> Iterator[Outcome]:
    """Yield outcomes as they come. Raises UserError if the scheduler is lost."""

    def heard(event: tuple[float, tuple[int, int, int]]) -> None:
        report(*event[1])

    client.subscribe_topic(TOPIC, heard)
    waiting = {client.submit(_work, job, pure=False): job for job in jobs}
    try:
        while waiting:
            ended = [future for future in waiting if future.done()]
            for future in ended:
                yield _outcome(future, waiting.pop(future), where)
            if client.status != "running":
                raise _lost(where)
            if not ended:
                time.sleep(LOOK_EVERY_S)
    finally:
        client.unsubscribe_topic(TOPIC)
        for future in waiting:
            future.cancel()


def _outcome(future: Any, job: Job, where: str) -> Outcome:
    from distributed import KilledWorker

    if future.status in ("cancelled", "lost"):
        raise _lost(where)
    error = future.exception()
    if error is None:
        outcome: Outcome = future.result()
        return outcome
    if isinstance(error, KilledWorker):
        text = "every worker that computed it died (killed, or out of memory)"
    else:
        text = f"{type(error).__name__}: {error}"
    return Outcome(job, "failed", "other", text, text)


def _lost(where: str) -> UserError:
    return UserError(f"{where} cannot be reached any more; the same command goes on from there")


def _work(job: Job) -> Outcome:
    """Carry out a job in a worker."""
    from dataclasses import replace

    import dask
    from distributed import get_worker

    worker, told = get_worker(), [0.0]

    def report(*rounds: int) -> None:
        now = time.monotonic()
        if now - told[0] >= REPORT_EVERY_S:
            told[0] = now
            worker.log_event(TOPIC, rounds)

    # xarray would lock its files by the cluster's scheduler, which knows none in memory
    with dask.config.set(scheduler="synchronous"):
        outcome = work(job, report)
    return replace(outcome, error=None)  # which need not pass from program to program


def _environment(number: int, threads: int, gpus: Sequence[str]) -> dict[str, str]:
    environment = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    environment["OPENBLAS_NUM_THREADS"] = "1"
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
    return environment


def _gpus() -> list[str]:
    """Return what CUDA_VISIBLE_DEVICES would name each GPU that this program sees."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return named.split(",")[:count] if named else [str(number) for number in range(count)]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's log lines away: what they tell, outcomes say.

    After an error they stay away, since what was lost is told again as the program ends.
    """
    import distributed  # noqa: F401  names its loggers

    families = ("distributed", "tornado", "asyncio")
    names = [name for name in logging.root.manager.loggerDict if name.startswith(families)]
    loggers = [logging.getLogger(name) for name in {*names, *families}]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
