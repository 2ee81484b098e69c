"""Workers of this machine: nobody else can reach them, and they end with the program that started
them, whatever becomes of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil
import pytest
from contract.small import scenario

from otafl import sweeping
from otafl.core.errors import UserError
from otafl.sweeping import local

pytestmark = [pytest.mark.exact, pytest.mark.slow]

SHORT = {"training.rounds": 2, "trials": 1, "sweep": {"training.batch_size": [1, 2, 3, 4]}}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A Dask client of two workers that are there."""
    with local.on_this_machine(2) as execute:
        client = execute.args[0]  # type: ignore[attr-defined]
        client.wait_for_workers(2, timeout=120)
        yield client


def everyone() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def listening(process: psutil.Process) -> list[Any]:
    found = process.net_connections(kind="inet")
    return [one.laddr for one in found if one.status == psutil.CONN_LISTEN]


def test_every_server_listens_on_the_loopback_address_alone(client: Any) -> None:
    """Of this program, where the scheduler is, and of its workers."""
    servers = [found for process in everyone() if (found := listening(process))]
    assert len(servers) == 3
    assert all(servers)
    assert all(ip_address(one.ip).is_loopback for each in servers for one in each)


def semaphores(process: psutil.Process) -> set[str]:
    """The named semaphores that a program has open."""
    return {one.path for one in process.memory_maps() if "/sem." in one.path}


@pytest.fixture
def had() -> set[str]:
    """Those that other tests have left to this program."""
    return semaphores(psutil.Process())


def test_no_semaphore_is_left_to_who_is_killed(had: set[str], client: Any) -> None:
    """Since there is none with a name."""
    for process in everyone():
        assert semaphores(process) <= had


CONNECT = """\
import logging, sys
from distributed import Client
from distributed.security import Security
logging.disable()
try:
    Client(sys.argv[1], security={security}, timeout=5)
except Exception as error:
    print(type(error).__name__)
else:
    print("let in")
"""


@pytest.mark.parametrize("security", ["Security.temporary()", "None"], ids=["other", "none"])
@pytest.mark.parametrize("protocol", ["tls", "tcp"])
def test_who_has_not_the_certificate_is_refused(client: Any, protocol: str, security: str) -> None:
    address = client.scheduler.address.replace("tls", protocol)
    code = CONNECT.format(security=security)
    done = subprocess.run(
        [sys.executable, "-c", code, address], capture_output=True, text=True, timeout=120
    )
    assert re.fullmatch(r"\w+Error\n", done.stdout)


def test_a_worker_refuses_a_stranger_too(client: Any) -> None:
    """A call as Dask's programs call each other."""
    for address in client.scheduler_info()["workers"]:
        code = (
            "import asyncio, sys\n"
            "from distributed.core import connect\n"
            "from distributed.security import Security\n"
            "async def call():\n"
            "    told = Security.temporary().get_connection_args('client')\n"
            "    comm = await connect(sys.argv[1], timeout=5, **told)\n"
            "    await comm.write({'op': 'identity', 'reply': True})\n"
            "    print('let in', await comm.read())\n"
            "asyncio.run(call())\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, address], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 1
        assert "let in" not in done.stdout


@pytest.mark.parametrize(
    ("stated", "workers", "threads"),
    [("1", 1, "1"), ("3", 1, "3"), ("64", 2, "4"), ("", 2, "4"), ("0", 1, "1")],
)
def test_workers_have_no_more_threads_than_the_user_lets_a_program_have(
    stated: str, workers: int, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local.os, "cpu_count", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", stated)
    for environment in local._environments(workers):
        assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == threads


def test_certificates_are_not_on_command_lines_nor_in_environments(client: Any) -> None:
    for process in everyone():
        told = [*process.cmdline(), *process.environ().values()]
        assert not any("PRIVATE KEY" in text for text in told)


BROKEN = """\
import sys
if any("otafl.sweeping.worker" in text for text in sys.orig_argv):
    sys.stderr.write("first line\\nno room for it\\n")
    sys.stderr.flush()
    import os
    os{how}
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("._exit(3)", "exit status 3: no room for it"),
        (".kill(os.getpid(), 9)", "SIGKILL: no room for it"),
    ],
)
def test_a_worker_that_dies_while_it_starts_is_a_sentence(
    how: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(BROKEN.format(how=how))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    with pytest.raises(UserError, match=re.escape(f"worker died while it started ({said})")):
        sweeping.sweep(scenario(SHORT), tmp_path / "out", workers=2)
    assert capfd.readouterr().err == ""


def test_a_worker_that_dies_later_is_started_anew() -> None:
    others = set(psutil.Process().children())

    def own() -> list[psutil.Process]:
        return list(set(psutil.Process().children()) - others)

    with local.on_this_machine(1) as execute:
        client, look_after = execute.args[0], execute.args[2]  # type: ignore[attr-defined]
        client.wait_for_workers(1, timeout=120)
        (first,) = own()
        first.kill()
        first.wait()
        look_after()
        end = time.monotonic() + 120
        while first.pid in (pids := set(client.run(os.getpid).values())) or not pids:
            assert time.monotonic() < end
        assert pids == {second.pid for second in own()}
    assert own() == []
