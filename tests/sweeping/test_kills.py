"""Sweeps whose processes are killed or interrupted, as users see them: exit codes, sentences, what
is finished, and the values of an undisturbed sweep, bit by bit, after the same command."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import nbclient
import nbformat
import psutil
import pytest
import xarray as xr
from contract.test_sweeps import same
from support.programs import Program

import otafl

POLICY = """\
import itertools, os, signal, time
from pathlib import Path

import torch

HERE, calls = Path(__file__).parent, itertools.count()


def held(link):
    if next(calls) > 5:  # more than a rehearsal has
        if (HERE / "kill").exists():
            (HERE / "kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        (HERE / "held").touch()
        while (HERE / "hold").exists():
            time.sleep(0.01)
    return 1 / link.h, torch.ones(link.h.shape[:2])


held.constraint = "none"
"""
"""A policy of whose process a file says whether it waits or dies, however fast the machine is."""
SCENARIO = """\
name: killed
data: {name: digits, train_samples: 300}
model: {name: mlp, hidden: [4]}
server: momentum
channel: {name: rician, snr_db: 5, speed_kmh: 0.3}
csi: delay
codec: {name: topk, keep: 0.3, error_feedback: true}
devices:
  count: 4
  compute: {name: mcu, battery_j: 6, restart: 0.05, harvest_w: 2.0e-3}
  availability: {name: markov, mean_on_s: 0.02, mean_off_s: 0.004}
  deadline_s: 0.0013
  late: next
training: {rounds: 60, eval_every: 20, local_steps: 2, eval_samples: 40}
trials: 2
engine: {device: cpu, threads: 1}
output: {save_timeline: true, save_link: true, save_models: true}
sweep:
  zip:
    - {training.batch_size: 2, power: {name: lyapunov, average_db: -6}}
    - {training.batch_size: 4, power: "policy:held"}
    - {training.batch_size: 6, power: {name: lyapunov, average_db: -6}}
"""
"""Everything here keeps something from round to round."""

END_S = 10.0
"""Seconds within which workers end after their client."""
KILLS = int(os.environ.get("OTAFL_TEST_KILLS", "6"))
"""More take longer and see more."""
WORKERS = ("--workers", "2")


def prepare(home: Path) -> Path:
    (home / "policy.py").write_text(POLICY)
    (home / "s.yaml").write_text(SCENARIO)
    return home


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    """The sweep that nobody disturbed."""
    home = prepare(tmp_path_factory.mktemp("whole"))
    return finish(home)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder with the scenario and its policy; what the test has started ends with it."""
    yield prepare(tmp_path)
    for process in psutil.process_iter(["cwd"]):
        if process.info["cwd"] == str(tmp_path):
            process.kill()


def start(home: Path, *options: object) -> Program:
    """Start the sweep in a group of its own, as a terminal does."""
    return Program(
        *("-m", "otafl.cli", "sweep", "s.yaml", "--out", "out", "--quiet", *options),
        cwd=home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def wait_until(condition: Callable[[], object], seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def read_files(home: Path) -> dict[Path, bytes]:
    """Read the files of finished points."""
    return {path: path.read_bytes() for path in (home / "out").rglob("*.nc")}


def list_children(client: Program) -> list[psutil.Process]:
    return psutil.Process(client.pid).children(recursive=True)


def begin_and_hold(home: Path, *options: object, finished: int) -> Program:
    """Start the sweep, and wait until its middle point is held and so many are finished."""
    (home / "hold").touch()
    client = start(home, *options)
    ready = lambda: (home / "held").exists() and len(read_files(home)) >= finished  # noqa: E731
    wait_until(lambda: client.poll() is not None or ready())
    assert client.poll() is None, client.communicate()[1]
    return client


def wait_for_end(processes: list[psutil.Process]) -> None:
    dead = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    wait_until(lambda: not any(p.is_running() and p.status() not in dead for p in processes), END_S)


def finish(home: Path, *options: object) -> xr.Dataset:
    """Run the sweep to its end, and return its result."""
    (home / "hold").unlink(missing_ok=True)
    client = start(home, *options)
    _, said = client.communicate(timeout=240)
    assert client.returncode == 0, said
    return otafl.open_results(home / "out").load()


def check_finish(home: Path, whole: xr.Dataset, *options: object) -> None:
    """Check that the same command keeps what is finished, and gives the undisturbed values."""
    kept = read_files(home)
    same(finish(home, *options), whole)
    assert {path: read_files(home).get(path) for path in kept} == kept


def test_a_killed_sweep_is_finished(home: Path, whole: xr.Dataset) -> None:
    client = begin_and_hold(home, finished=1)
    client.kill()
    client.wait()
    check_finish(home, whole)


@pytest.mark.slow
@pytest.mark.usefixtures("signals_arrive")
@pytest.mark.parametrize(
    ("number", "to"),
    [
        (signal.SIGKILL, os.kill),
        (signal.SIGINT, os.kill),
        (signal.SIGINT, os.killpg),
        (signal.SIGTERM, os.kill),
        (signal.SIGHUP, os.killpg),
    ],
)
def test_workers_end_with_their_client(
    number: signal.Signals, to: Callable[[int, int], None], home: Path, whole: xr.Dataset
) -> None:
    """Whether a signal reaches the client only or its group, the client alone says a sentence."""
    client = begin_and_hold(home, *WORKERS, finished=2)
    workers = list_children(client)
    assert len(workers) >= 2
    to(client.pid, number)
    said = client.communicate(timeout=60)[1]
    if number == signal.SIGKILL:
        assert client.returncode == -signal.SIGKILL
    else:
        assert client.returncode == 128 + number
        assert re.fullmatch(r"otafl: interrupted; .* resumes .*", said.splitlines()[-1])
        assert said.count("interrupted") == 1
        assert "Traceback" not in said
    wait_for_end(workers)
    if number == signal.SIGKILL:
        check_finish(home, whole, *WORKERS)


@pytest.mark.slow
def test_the_stack_of_a_killed_worker_is_tried_again(home: Path, whole: xr.Dataset) -> None:
    (home / "kill").touch()
    same(finish(home, *WORKERS), whole)
    assert not (home / "kill").exists()


@pytest.mark.slow
@pytest.mark.xfail(reason="a worker that dies while it starts ends the sweep")
def test_a_worker_that_is_killed_at_its_start_is_replaced(home: Path, whole: xr.Dataset) -> None:
    client = start(home, *WORKERS)
    own = psutil.Process(client.pid).cmdline()
    killed: list[psutil.Process] = []
    while client.poll() is None and not killed:
        for child in list_children(client):
            with suppress(psutil.NoSuchProcess):
                if child.cmdline() not in ([], own) and "tracker" not in str(child.cmdline()):
                    child.kill()
                    killed.append(child)
    assert killed
    assert client.wait(240) == 0, client.communicate()[1]
    same(otafl.open_results(home / "out"), whole)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), WORKERS], ids=["alone", "workers"])
def test_killed_at_many_moments(options: tuple[str, ...], home: Path, whole: xr.Dataset) -> None:
    """One folder is taken up again and again, and a new one begun when it is finished."""
    options, chance, kills = (*options, "--checkpoint-every", "5"), random.Random(0), 0
    began = time.monotonic()
    finish(home, *options)
    longest = 0.7 * (time.monotonic() - began)
    shutil.rmtree(home / "out")
    while kills < KILLS:
        client = start(home, *options)
        with suppress(subprocess.TimeoutExpired):
            client.wait(chance.uniform(0.0, longest))
        client.kill()
        kills += client.wait() == -signal.SIGKILL
        if client.returncode == 0:
            same(otafl.open_results(home / "out"), whole)
            shutil.rmtree(home / "out")
    check_finish(home, whole, *options)


PROGRAM = """\
import otafl

_ = open("times", "a").write("once ")
print(otafl.sweep("s.yaml", "out", workers=2).sizes["trial"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["script", "notebook"])
def test_a_sweep_with_workers_needs_no_main_guard(kind: str, home: Path, whole: xr.Dataset) -> None:
    """The program is run once, not by every worker again."""
    if kind == "notebook":
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(PROGRAM)])
        where = {"metadata": {"path": str(home)}}
        nbclient.NotebookClient(notebook, timeout=240, resources=where).execute()
        assert notebook.cells[0].outputs[-1]["text"] == "2\n"
    else:
        (home / "program.py").write_text(PROGRAM)
        done = subprocess.run([sys.executable, "program.py"], cwd=home, stdout=subprocess.PIPE)
        assert (done.returncode, done.stdout) == (0, b"2\n")
    assert (home / "times").read_text() == "once "
    same(otafl.open_results(home / "out"), whole)


@pytest.mark.slow
def test_the_scheduler_of_a_cluster_is_killed(home: Path, whole: xr.Dataset) -> None:
    """The client says so and ends with 2; the same command goes on at another scheduler."""

    def start_cluster() -> tuple[list[Program], str]:
        file = home / f"scheduler{time.monotonic_ns()}.json"
        options = ("--host", "127.0.0.1", "--port", 0, "--no-dashboard", "--scheduler-file", file)
        scheduler = Program("-m", "distributed.cli.dask_scheduler", *options, cwd=home)
        wait_until(lambda: file.exists() and file.read_text().endswith("}"))  # written whole
        options = ("--scheduler-file", file, "--nthreads", 1, "--no-dashboard", "--no-nanny")
        worker = Program("-m", "distributed.cli.dask_worker", *options, cwd=home)
        return [scheduler, worker], json.loads(file.read_text())["address"]

    programs, address = start_cluster()
    client = begin_and_hold(home, "--scheduler", address, finished=1)
    for program in programs:
        program.kill()
    said = client.communicate(timeout=60)[1]
    assert client.returncode == 2
    assert re.search(r"otafl: error: the scheduler .* cannot be reached any more", said)
    assert "Traceback" not in said
    check_finish(home, whole, "--scheduler", start_cluster()[1])
