"""Workers of this machine: nobody else can reach them, they end with the program that started them,
whatever becomes of it, and a worker that dies takes nothing with it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from contract.small import scenario
from contract.test_sweeps import same
from support.programs import run

from otafl import sweeping
from otafl.core.errors import UserError
from otafl.scenario import to_yaml
from otafl.sweeping import FailedStacks, local, plan_file
from otafl.sweeping.local import WorkerPool
from otafl.sweeping.stack_job import Job

pytestmark = [pytest.mark.exact, pytest.mark.slow]

SHORT = {"training.rounds": 2, "trials": 1, "sweep": {"training.batch_size": [1, 2, 3, 4]}}


def jobs_of(folder: Path, keys: dict[str, Any] = SHORT) -> list[Job]:
    one = scenario(keys)
    return [Job(one, stack, folder) for stack in plan_file.load_or_create(one, folder)]


def nothing(*_: int) -> None: ...


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    """Two workers that take jobs."""
    with WorkerPool(2) as pool:
        for _ in pool.run(jobs_of(tmp_path_factory.mktemp("first")), nothing):
            pass
        yield pool


def everyone() -> list[psutil.Process]:
    """This program and its workers."""
    me = psutil.Process()
    programs = me.children(recursive=True)
    return [me, *(one for one in programs if "otafl.sweeping.worker" in " ".join(one.cmdline()))]


def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_nobody_can_speak_to_a_worker(pool: WorkerPool) -> None:
    """No program listens, and no socket has a name or an address."""
    workers = everyone()[1:]
    assert len(workers) == 2
    for process in workers:
        assert process.net_connections(kind="inet") == []
        assert all(not one.laddr for one in process.net_connections(kind="unix"))
    assert not [
        one
        for one in psutil.Process().net_connections(kind="inet")
        if one.status == psutil.CONN_LISTEN
    ]


def semaphores(process: psutil.Process) -> set[str]:
    """The named semaphores that a program has open."""
    return {one.path for one in process.memory_maps() if "/sem." in one.path}


@pytest.fixture
def had() -> set[str]:
    """Those that other tests have left to this program."""
    return semaphores(psutil.Process())


def test_no_semaphore_is_left_to_who_is_killed(had: set[str], pool: WorkerPool) -> None:
    """Since there is none with a name."""
    for process in everyone():
        assert semaphores(process) <= had


def test_workers_find_the_modules_that_the_client_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no others: their path is the client's."""
    (tmp_path / "seen.py").write_text(
        "import sys\nfrom pathlib import Path\n"
        f"Path({str(tmp_path / 'path')!r}).write_text(repr(sys.path))\n"
        "def power(link):\n"
        "    able = link.eligible_mask\n"
        "    return able.to(link.h.dtype), able.any(-1).to(link.gain.dtype)\n"
        "power.constraint = 'none'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    keys = {**SHORT, "power": "seen:power", "channel": "rayleigh"}
    sweeping.sweep(scenario(keys), tmp_path / "out", workers=2)
    assert (tmp_path / "path").read_text() == repr(sys.path)


ATTACK = """\
import os, sys, time
from pathlib import Path
os.setgid(65534), os.setuid(65534)
place, marker = Path(sys.argv[1]), sys.argv[2]
mine = place.parent / "mine"
(mine / "otafl").mkdir(parents=True)
code = f"import os; open({marker!r}, 'a').write(str(os.getuid()))"
(mine / "otafl" / "__init__.py").write_text(code)
while True:
    for folder in place.iterdir():
        if folder.name.startswith("scheduler") and not folder.is_symlink():
            folder.rename(place / f"old-{folder.name}")
            folder.symlink_to(mine)
    time.sleep(0.001)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
def test_another_user_runs_no_code_through_a_shared_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user has made the folder that Dask would put in the workers' path."""
    with tempfile.TemporaryDirectory(prefix="shared-") as shared:
        place = Path(shared) / "dask-scratch-space"
        place.mkdir()
        Path(shared).chmod(0o1777)
        place.chmod(0o777)
        os.chown(place, 65534, 65534)
        marker = Path(shared) / "marker"
        code = [sys.executable, "-S", "-c", ATTACK, place, marker]
        attacker = subprocess.Popen(list(map(str, code)), cwd="/")
        monkeypatch.setenv("TMPDIR", shared)
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setattr(sys, "path", list(sys.path))
        try:
            sweeping.sweep(scenario(SHORT), tmp_path / "out", workers=2)
        finally:
            attacker.kill()
            attacker.wait()
        assert not marker.exists()
        assert os.listdir(place) == []


SCRIPT = """\
import sys
from pathlib import Path
from otafl import load_scenario, sweeping
print("began", flush=True)
sweeping.sweep(load_scenario(sys.argv[1]), Path(sys.argv[2]), workers=2)
"""


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    """Its workers do not run it again, as they would of multiprocessing."""
    (tmp_path / "study.py").write_text(SCRIPT)
    (tmp_path / "study.yaml").write_text(to_yaml(scenario(SHORT)))
    done = run("study.py", "study.yaml", "out", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "began\n"), done.stderr


@pytest.mark.parametrize(
    ("stated", "workers", "threads"),
    [("1", 1, "1"), ("3", 1, "3"), ("64", 2, "4"), ("", 2, "4"), ("0", 1, "1")],
)
def test_workers_have_no_more_threads_than_the_user_lets_a_program_have(
    stated: str, workers: int, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local.os, "cpu_count", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", stated)
    for environment in local._build_environments(workers):
        assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == threads


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


FORKED = """\
import os, sys, time
from otafl.sweeping.local import WorkerPool
with WorkerPool(1) as pool:
    pool.start()
    if os.fork() == 0:
        time.sleep(600)
    print(pool._running_workers[0]._process.pid, flush=True)
    time.sleep(600)
"""


def test_a_worker_ends_though_a_fork_of_its_client_holds_the_pipe() -> None:
    client = subprocess.Popen(
        [sys.executable, "-c", FORKED], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert client.stdout is not None
        worker = psutil.Process(int(client.stdout.readline()))
        client.kill()
        until(lambda: gone(worker))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(client.pid, signal.SIGKILL)
        client.communicate()


def test_a_worker_that_dies_later_is_started_anew(tmp_path: Path) -> None:
    others = set(psutil.Process().children())

    def own() -> list[psutil.Process]:
        return list(set(psutil.Process().children()) - others)

    with WorkerPool(1) as pool:
        jobs = jobs_of(tmp_path)
        outcomes = pool.run(jobs, nothing)
        states = [next(outcomes).state]
        (first,) = own()
        first.kill()
        states += [one.state for one in outcomes]
        (second,) = own()
        assert second.pid != first.pid
        second.kill()  # while it has nothing to do
        second.wait()
        states += [one.state for one in pool.run(jobs, nothing)]
    assert states == 2 * len(jobs) * ["done"]
    assert own() == []


KILLER = """\
import os
from pathlib import Path
import torch

def power(link, size, times, place):
    deaths = Path(place)
    if size == 2 and len(os.listdir(deaths)) < times:
        (deaths / str(os.getpid())).touch()
        os.kill(os.getpid(), 9)
    return torch.zeros_like(link.h), torch.ones_like(link.gain[:, :1].expand(link.h.shape[:2]))
"""


@pytest.mark.parametrize("times", [local.DEATHS - 1, local.DEATHS, 1000])
@pytest.mark.usefixtures("forked_workers")
def test_a_stack_that_kills_its_workers(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is computed by others, up to so many, and once more at the end; the others are kept."""
    (tmp_path / "killer.py").write_text(KILLER)
    (tmp_path / "deaths").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    power = {"name": "killer:power", "size": 1, "times": times, "place": str(tmp_path / "deaths")}
    keys = {**SHORT, "channel": "rayleigh", "power": power}
    keys["sweep"] = {"power.size": [1, 2, 3]}
    one = scenario(keys)
    if times == 1000:
        with pytest.raises(FailedStacks, match="every worker that computed it died") as raised:
            sweeping.sweep(one, tmp_path / "out", workers=2)
        assert "1 of 3 stacks failed" in str(raised.value)
        assert "SIGKILL" in str(raised.value)
        expected = 2 * local.DEATHS
    else:
        said: list[str] = []
        result = sweeping.sweep(one, tmp_path / "out", workers=2, tell=said.append)
        same(result, sweeping.run(one), tolerance=1e-5)
        expected = times
        lost = [text for text in said if "a worker is lost (SIGKILL)" in text]
        assert len(lost) == local.DEATHS - 1
        assert lost[-1].endswith(
            "another one retries stack 1, from its last checkpoint (try 4 of 4)"
        )
    assert len(os.listdir(tmp_path / "deaths")) == expected


@pytest.mark.usefixtures("forked_workers")
def test_progress_comes_from_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a stack too."""
    told: list[int] = []
    keys = {"training.rounds": 300, "sweep": {"training.batch_size": [1, 2]}, "trials": 1}
    sweeping.sweep(scenario(keys), tmp_path, lambda done, *_: told.append(done), workers=2)
    assert told == sorted(told)
    assert told[-1] == 600
    assert any(done % 300 for done in told)


def test_a_resumed_sweep_gives_a_worker_as_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though fewer stacks are left than there are workers."""
    monkeypatch.setattr(local.os, "cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for left in (1, 2, 4):
        pool = WorkerPool(left, 4)
        assert [one["OMP_NUM_THREADS"] for one in pool._environments] == left * ["2"]


def test_workers_without_a_stderr(tmp_path: Path) -> None:
    (tmp_path / "study.py").write_text(SCRIPT)
    (tmp_path / "study.yaml").write_text(to_yaml(scenario(SHORT)))
    command = f"{sys.executable} study.py study.yaml out 2>&-"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, b"began\n")


def test_a_system_that_starts_no_more_programs_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(local.subprocess, "Popen", refuse)
    with pytest.raises(UserError, match="--workers 2: no worker can be started"):
        sweeping.sweep(scenario(SHORT), tmp_path, workers=2)
