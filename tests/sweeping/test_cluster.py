"""Workers of a Dask scheduler: they and it may be killed, and strangers that could come in are
warned of."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import programs

from otafl import open_results
from otafl.core.errors import UserError
from otafl.sweeping import cluster

POLICY = """\
import os
import time
from pathlib import Path

HERE = Path(__file__).parent


def held(link):
    (HERE / f"{os.getpid()}.computes").touch()
    while (HERE / "hold").exists():
        time.sleep(0.01)
    p = (link.budget[:, None] / link.symbol_power).sqrt() + 0.0 * link.h
    return p, (p * link.h).abs().mean(-1).square()
"""


@pytest.mark.slow
def test_a_worker_and_then_the_scheduler_are_killed(tmp_path: Path) -> None:
    """The stack of the worker is computed by another one. Without the scheduler the client ends
    with a sentence, and the same command goes on at another one."""
    one = "name: study\ndata: digits\npower: policy:held\ntraining: {rounds: 2}\n"
    (tmp_path / "study.yaml").write_text(one)
    (tmp_path / "policy.py").write_text(POLICY)
    (tmp_path / "hold").touch()
    place = "--host 127.0.0.1 --no-dashboard --scheduler-file"
    with contextlib.ExitStack() as stack:

        def start(line: str) -> subprocess.Popen[str]:
            process = programs.start("-m", *line.split(), cwd=tmp_path, stderr=subprocess.PIPE)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        def start_scheduler(file: str) -> subprocess.Popen[str]:
            process = start(f"distributed.cli.dask_scheduler {place} {file} --port 0")
            wait_until((tmp_path / file).is_file)
            return process

        def start_worker(file: str) -> subprocess.Popen[str]:
            return start(f"distributed.cli.dask_worker {place} {file} --nthreads 1 --no-nanny")

        def start_client(file: str) -> subprocess.Popen[str]:
            return start(f"otafl.cli sweep study.yaml --out out --quiet --scheduler {file}")

        def computes(worker: subprocess.Popen[str]) -> bool:
            return (tmp_path / f"{worker.pid}.computes").exists()

        scheduler, first, client = (
            make("a.json") for make in (start_scheduler, start_worker, start_client)
        )
        wait_until(lambda: computes(first))
        first.kill()
        second = start_worker("a.json")
        wait_until(lambda: computes(second))
        scheduler.kill()
        said = client.communicate(timeout=600)[1]
        assert client.returncode == 2, said
        (error,) = said.splitlines()
        assert "otafl: error: the scheduler a.json cannot be reached any more" in error
        (tmp_path / "hold").unlink()
        start_scheduler("b.json")
        start_worker("b.json")
        client = start_client("b.json")
        said = client.communicate(timeout=600)[1]
        assert client.returncode == 0, said
    assert open_results(tmp_path / "out").attrs["complete"] == 1


@pytest.mark.parametrize(
    ("address", "told"), [("tcp://10.0.0.5:8786", True), ("tcp://127.0.0.1:8786", False)]
)
def test_a_scheduler_that_strangers_may_reach_is_told(
    address: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")

    def absent(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(cluster, "_find_scheduler", lambda address: address)
    monkeypatch.setattr(distributed, "Client", absent)
    said: list[str] = []
    with (
        pytest.raises(UserError, match="no Dask scheduler answers"),
        cluster.connect_scheduler(address, said.append),
    ):
        pass
    assert [f"--scheduler {address}: without TLS" in text for text in said] == [True] * told


def wait_until(condition: Callable[[], object], seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
