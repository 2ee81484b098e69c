"""Be a worker of `local`: a program that takes jobs from the one that started it.

That program writes a line of JSON to its stdin, and keeps it open as long as it lives.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from typing import Any

from otafl.sweeping.cluster import LOOPBACK, quiet


def main() -> None:
    """Take jobs until the program that started this one ends, however it does."""
    for number in (signal.SIGINT, signal.SIGHUP):  # who started it decides
        signal.signal(number, signal.SIG_IGN)
    told = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_the_client, daemon=True).start()
    with quiet():
        asyncio.run(_serve(told))
    os._exit(0)  # though a job may still run


def _end_with_the_client() -> None:
    os.read(0, 1)
    os._exit(0)


async def _serve(told: dict[str, Any]) -> None:
    from dask import config
    from distributed import Worker
    from distributed.security import Security

    security = Security(require_encryption=True, **told["security"])
    with config.set({"distributed.worker.http.routes": []}):
        worker = Worker(
            told["scheduler"],
            nthreads=1,
            memory_limit=0,
            host=LOOPBACK,
            dashboard=False,
            dashboard_address=f"{LOOPBACK}:0",
            local_directory=told["folder"],
            security=security,
        )
    async with worker:
        os.write(told["ready"], b".")
        os.close(told["ready"])
        os.dup2(told["stderr"], 2)
        os.close(told["stderr"])
        await worker.finished()
