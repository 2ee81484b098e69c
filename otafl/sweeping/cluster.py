"""Have jobs carried out by the Dask workers of a cluster.

A worker computes one stack at a time and writes its file itself, so a client that dies takes
nothing finished with it. A worker that dies has its stack computed by another one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from otafl.core.errors import UserError
from otafl.core.files import MIB, read_text
from otafl.sweeping.stack_job import Execute, Job, Outcome, Report, run_remote_job

TOPIC = "otafl"
ENCRYPTED = ("tls", "wss")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
LOOK_EVERY_S = 0.2
CONNECT_S = 30
WORKERS_S = 300


@contextlib.contextmanager
def connect_scheduler(address: str, tell: Callable[[str], None]) -> Iterator[Execute]:
    """Use the workers of a Dask scheduler, given by its address or the file that it writes.

    They finish their jobs if the client ends.

    tell: called where others could reach the scheduler too. Raises UserError where no scheduler
    answers, or no worker has come.
    """
    from distributed import Client

    found = _find_scheduler(address)
    if urlsplit(found).scheme not in ENCRYPTED and urlsplit(found).hostname not in LOOPBACK:
        tell(
            f"--scheduler {address}: without TLS, who reaches that port can run programs as you "
            "and read what is sent; tls:// is for networks that others use too"
        )
    with silence_dask():
        try:
            client = Client(found, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError, TypeError, RuntimeError) as error:  # the last two without TLS
            raise _make_silent_error(address) from error
        with client:
            try:
                client.wait_for_workers(1, timeout=WORKERS_S)
            except TimeoutError as error:
                raise UserError(
                    f"--scheduler {address}: no worker came in {WORKERS_S} s; `dask worker "
                    f"{address}` starts one"
                ) from error
            yield partial(iterate_outcomes, client, f"the scheduler {address}")


def _find_scheduler(address: str) -> str:
    """Return the address, or that in a scheduler's file, once something listens there."""
    found = address
    try:
        if address.endswith(".json"):
            found = json.loads(read_text(address, MIB))["address"]
        parts = urlsplit(found)
        if not (parts.hostname and parts.port):
            raise UserError(
                f"--scheduler {address}: must be an address like tls://10.0.0.5:8786, or the .json "
                "file that `dask scheduler --scheduler-file` writes"
            )
        socket.create_connection((parts.hostname, parts.port), CONNECT_S).close()
    except (OSError, ValueError, KeyError) as error:
        raise _make_silent_error(address) from error
    return found


def _make_silent_error(address: str) -> UserError:
    return UserError(
        f"--scheduler {address}: no Dask scheduler answers there, or not to the certificates that "
        "distributed.comm.tls names in Dask's configuration; `dask scheduler` starts one and "
        "prints its address"
    )


def iterate_outcomes(
    client: Any,
    description: str,
    jobs: Sequence[Job],
    report: Report,
    waits: bool,
) -> Iterator[Outcome]:
    """Yield outcomes as they come.

    description: names the workers. Raises UserError if the scheduler is lost.
    """

    def on_event(event: tuple[float, tuple[str, int]]) -> None:
        report(*event[1])

    client.subscribe_topic(TOPIC, on_event)
    waiting = {client.submit(_run_job, job, waits, pure=False): job for job in jobs}
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for future in waiting:
        future.add_done_callback(ended.put)
    try:
        while waiting:
            if client.status != "running":
                raise _make_lost_error(description)
            try:
                future = ended.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                continue
            yield _get_outcome(future, waiting.pop(future), description)
    finally:
        client.unsubscribe_topic(TOPIC)
        for future in waiting:
            future.cancel()


def _get_outcome(future: Any, job: Job, where: str) -> Outcome:
    from distributed import KilledWorker

    if future.status in ("cancelled", "lost"):
        raise _make_lost_error(where)
    error = future.exception()
    if error is None:
        outcome: Outcome = future.result()
        return outcome
    if isinstance(error, KilledWorker):
        text = "every worker that computed it died (killed, or out of memory)"
    else:
        text = f"{type(error).__name__}: {error}"
    return Outcome(job, "failed", "other", text, text)


def _make_lost_error(where: str) -> UserError:
    return UserError(f"{where} cannot be reached any more; run the same command again to continue")


def _run_job(job: Job, waits: bool) -> Outcome:
    """Carry out a job in a worker."""
    import dask
    from distributed import get_worker

    worker = get_worker()
    # xarray would lock its files by the cluster's scheduler, which knows none in memory
    with dask.config.set(scheduler="synchronous"):
        return run_remote_job(job, lambda *rounds: worker.log_event(TOPIC, rounds), waits)


@contextlib.contextmanager
def silence_dask() -> Iterator[None]:
    """Keep Dask's log lines away: what they tell, outcomes say.

    After an error they stay away, since Dask reports the loss again as the program ends.
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
