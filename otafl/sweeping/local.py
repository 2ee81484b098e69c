"""Start workers on this machine: programs that end with this one, and that nobody else can reach.

Every server listens on the loopback address alone, and speaks only with who has a certificate that
is made for the sweep and handed on through pipes: else whoever reaches a port, from the network or
as another user of this machine, could run code as this user.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from otafl.core.errors import UserError
from otafl.sweeping import scratch
from otafl.sweeping.cluster import LOOPBACK, by_workers, quiet
from otafl.sweeping.executing import Execute

END_S = 5.0


@contextlib.contextmanager
def on_this_machine(workers: int) -> Iterator[Execute]:
    """Start so many workers, which share the processor's threads; with GPUs, each has one, in
    turn."""
    from dask import config
    from distributed import Client, Scheduler, SpecCluster
    from distributed.security import Security

    security = Security.temporary()
    options = {
        "host": LOOPBACK,
        "protocol": "tls",
        "security": security,
        "dashboard": False,
        "dashboard_address": f"{LOOPBACK}:0",
    }
    with (
        quiet(),
        scratch.folder() as folder,
        config.set({"distributed.scheduler.http.routes": []}),
        SpecCluster(scheduler={"cls": Scheduler, "options": options}, security=security) as cluster,
        Programs(workers, cluster.scheduler_address, security, folder) as programs,
        Client(cluster, set_as_default=False) as client,
    ):
        yield partial(by_workers, client, "the workers of this machine", programs.look_after)


@dataclass(frozen=True)
class Program:
    """Hold a worker's program.

    ready: a pipe on which it writes once it takes jobs. log: what it said on stderr until then.
    """

    process: subprocess.Popen[bytes]
    ready: BinaryIO
    log: Path

    def ended(self) -> int | None:
        """Return its exit status, negative for a signal, or None while it lives."""
        return self.process.poll()

    def ends(self) -> None:
        """End it, if it lives: a worker does when its stdin is closed."""
        assert self.process.stdin is not None
        self.ready.close()
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def was_ready(self) -> bool:
        """Say of one that ended whether it has taken jobs."""
        with self.ready:
            return bool(self.ready.read())


class Programs:
    """Hold the workers' programs, a fixed number of them."""

    def __init__(self, number: int, scheduler: str, security: Any, folder: Path) -> None:
        self._folder = folder
        self._environments = _environments(number)
        fields = ("tls_ca_file", "tls_worker_key", "tls_worker_cert")
        self._told = {
            "scheduler": scheduler,
            "folder": str(folder),
            "security": {name: getattr(security, name) for name in fields},
        }
        self._all: list[Program] = []

    def __enter__(self) -> Programs:
        for number in range(len(self._environments)):
            self._all.append(self._started(number))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for program in self._all:
            program.ends()

    def look_after(self) -> None:
        """Start those anew that died. Raises UserError if one did before it took jobs."""
        for number, program in enumerate(self._all):
            status = program.ended()
            if status is None:
                continue
            if not program.was_ready():
                raise UserError(self._died(program, status))
            self._all[number] = self._started(number)

    def _died(self, program: Program, status: int) -> str:
        how = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
        lines = program.log.read_text(errors="replace").splitlines()
        last = f": {lines[-1].strip()}" if lines else ""
        return (
            f"--workers {len(self._all)}: a worker died while it started ({how}{last}); fewer need "
            "less memory, and without --workers this program computes the stacks itself"
        )

    def _started(self, number: int) -> Program:
        """Start a program that finds what this one finds, in a session of its own: Ctrl-C in a
        terminal is for this program."""
        code = (
            f"import sys; sys.path = {sys.path!r}; from otafl.sweeping.worker import main; main()"
        )
        log = self._folder / f"{number}.log"
        ready, writes = os.pipe()
        stderr = os.dup(2)
        try:
            with log.open("wb") as file:
                process = subprocess.Popen(
                    [sys.executable, "-c", code],
                    stdin=subprocess.PIPE,
                    stderr=file,
                    env=os.environ | self._environments[number],
                    pass_fds=(writes, stderr),
                    start_new_session=True,
                )
        finally:
            os.close(writes)
            os.close(stderr)
        assert process.stdin is not None
        told = self._told | {"ready": writes, "stderr": stderr}
        with contextlib.suppress(BrokenPipeError):  # it is dead already, as will be seen
            process.stdin.write(json.dumps(told).encode() + b"\n")
            process.stdin.flush()
        return Program(process, os.fdopen(ready, "rb"), log)


def _environments(workers: int) -> list[dict[str, str]]:
    """Return what each worker's environment has that this program's has not: its share of the
    processor's threads, and no more of them than the user lets a program have."""
    share, stated = (os.cpu_count() or 1) // workers, os.environ.get("OMP_NUM_THREADS", "")
    most = int(stated) if stated.isdecimal() else share
    threads, gpus = str(max(1, min(share, most))), _gpus()
    shared = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": "1"}
    if not gpus:
        return [shared] * workers
    return [
        shared | {"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} for number in range(workers)
    ]


def _gpus() -> Sequence[str]:
    """Return what CUDA_VISIBLE_DEVICES would name each GPU that this program sees."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return named.split(",")[:count] if named else [str(number) for number in range(count)]
