"""Programs that are killed or interrupted while their workers compute, as users see it: processes,
exit codes, finished files, and the same numbers bit by bit after the same command.

A power policy of the scenario says which process computes. A worker waits in it, or kills itself,
where a file says so, so that no test depends on how fast a machine is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import nbclient
import nbformat
import psutil
import pytest
import xarray as xr

import otafl

pytestmark = pytest.mark.slow

POLICY = """\
import os
import signal
import time
from pathlib import Path

import torch

HERE = Path(__file__).parent


def is_worker():
    return os.environ.get("CLIENTS_PARENT") not in (None, str(os.getppid()))


def power(link):
    if is_worker():
        (HERE / f"{os.getpid()}.worker").touch()
        try:
            (HERE / "kill").unlink()
        except FileNotFoundError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    p = torch.conj(torch.sgn(link.h)) * (link.budget[:, None] / link.symbol_power).sqrt()
    return p, (p * link.h).abs().mean(-1).square()


def held(link):
    p = power(link)
    while is_worker() and (HERE / "hold").exists():
        time.sleep(0.01)
    return p
"""
SCENARIO = """\
name: killed
data: {name: digits, train_samples: 300}
model: {name: mlp, hidden: [4]}
server: momentum
channel: {name: rician, snr_db: 5}
codec: {name: topk, keep: 0.3, error_feedback: true}
devices: {count: 4}
training: {rounds: 30, eval_every: 10, local_steps: 2, eval_samples: 40}
trials: 2
engine: {device: cpu, threads: 1}
output: {save_link: true, save_models: true}
sweep:
  zip:
    - {power: "policy:power", training.batch_size: 2}
    - {power: "policy:held", training.batch_size: 3}
    - {power: "policy:power", training.batch_size: 4}
"""
"""Momentum and feedback are kept from round to round."""

END_S = 10.0
"""Within which workers end after the program that started them."""


def wait_until(condition: Callable[[], object], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    """The sweep that nobody disturbed, computed by a program without workers."""
    home = tmp_path_factory.mktemp("whole")
    prepare(home)
    assert start(home).wait(300) == 0
    return otafl.open_results(home / "out").load()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder with the scenario and its policy; no process outlives the test."""
    prepare(tmp_path)
    yield tmp_path
    for process in [*psutil.Process().children(recursive=True), *list_workers(tmp_path)]:
        process.kill()


def prepare(home: Path) -> None:
    (home / "policy.py").write_text(POLICY)
    (home / "s.yaml").write_text(SCENARIO)


def start(home: Path, *options: str, program: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start the sweep, or another program in its place."""
    command = ("-m", "otafl.cli", "sweep", "s.yaml", "--out", "out", "--quiet", *options)
    return subprocess.Popen(
        [sys.executable, *(program or command)],
        cwd=home,
        env=os.environ | {"CLIENTS_PARENT": str(os.getpid())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def list_workers(home: Path) -> list[psutil.Process]:
    """List the processes that computed for a sweep and live."""
    numbers = (int(path.stem) for path in home.glob("*.worker"))
    found = [psutil.Process(number) for number in numbers if psutil.pid_exists(number)]
    return [one for one in found if one.status() != psutil.STATUS_ZOMBIE]


def read_files(home: Path) -> dict[Path, bytes]:
    """Read the files of finished points."""
    found = {path: path.read_bytes() for path in (home / "out").rglob("*.nc")}
    return {path: data for path, data in found.items() if path.stem != "interrupted"}


def check_same(home: Path, whole: xr.Dataset) -> None:
    """Compare all values bit by bit, but for the times that computing took."""
    found = otafl.open_results(home / "out").load()
    times = [str(name) for name in whole.variables if "wall_time" in str(name)]
    xr.testing.assert_equal(found.drop_vars(times), whole.drop_vars(times))


def finish(home: Path, *options: str) -> None:
    """Give the same command again, to its end."""
    (home / "hold").unlink(missing_ok=True)
    process = start(home, *options)
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said


def begin_and_hold(home: Path) -> subprocess.Popen[str]:
    """Start two workers, and wait until something is finished and the rest is held."""
    (home / "hold").touch()
    client = start(home, "--workers", "2")
    wait_until(lambda: client.poll() is not None or len(read_files(home)) == 2)
    assert client.poll() is None, client.communicate()[1]
    assert list_workers(home)
    return client


def test_workers_end_with_a_killed_parent(home: Path, whole: xr.Dataset) -> None:
    client = begin_and_hold(home)
    everyone = psutil.Process(client.pid).children(recursive=True)
    kept = read_files(home)
    client.kill()
    client.communicate()
    wait_until(lambda: not any(map(is_alive, everyone)), END_S)
    finish(home, "--workers", "2")
    assert {path: read_files(home).get(path) for path in kept} == kept
    check_same(home, whole)


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_an_interruption_of_the_parent_alone_ends_all(
    home: Path, whole: xr.Dataset, signals_arrive: None
) -> None:
    client = begin_and_hold(home)
    everyone = psutil.Process(client.pid).children(recursive=True)
    kept = read_files(home)
    client.send_signal(signal.SIGINT)
    said = client.communicate(timeout=60)[1]
    assert client.returncode == 130, said
    assert "interrupted" in said
    assert "Traceback" not in said
    wait_until(lambda: not any(map(is_alive, everyone)), END_S)
    assert read_files(home) == kept
    finish(home, "--workers", "2")
    assert {path: read_files(home).get(path) for path in kept} == kept
    check_same(home, whole)


def test_the_stack_of_a_killed_worker_is_tried_again(home: Path, whole: xr.Dataset) -> None:
    (home / "kill").touch()
    finish(home, "--workers", "2")
    assert not (home / "kill").exists()
    check_same(home, whole)


@pytest.mark.xfail(reason="a worker that dies while it starts ends the sweep", strict=True)
def test_a_worker_that_is_killed_at_its_start_is_replaced(home: Path, whole: xr.Dataset) -> None:
    client = start(home, "--workers", "2")
    killed: list[psutil.Process] = []

    def kill_first() -> bool:
        if client.poll() is None:
            for one in list_started(client)[:1]:
                one.kill()
                killed.append(one)
        return bool(killed) or client.poll() is not None

    wait_until(kill_first)
    said = client.communicate(timeout=300)[1]
    assert killed
    assert not list(home.glob(f"{killed[0].pid}.worker"))
    assert client.returncode == 0, said
    check_same(home, whole)


def list_started(client: subprocess.Popen[str]) -> list[psutil.Process]:
    """List the workers that a program has started, without a helper of the interpreter."""
    found = []
    for one in psutil.Process(client.pid).children(recursive=True):
        try:
            words = " ".join(one.cmdline())
        except psutil.NoSuchProcess:
            continue
        own = sys.executable in words and "otafl.cli sweep" not in words
        if own and not any(name in words for name in ("resource_tracker", "forkserver")):
            found.append(one)
    return found


PROGRAM = """\
import otafl

_ = open("times", "a").write("once ")
result = otafl.sweep("s.yaml", "out", workers=2)
print(result.sizes["trial"])
"""


@pytest.mark.parametrize("kind", ["script", "interpreter", "notebook"])
def test_a_sweep_with_workers_needs_no_main_guard(
    kind: str, home: Path, whole: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is run once, not by every worker again."""
    if kind == "notebook":
        cell = nbformat.v4.new_code_cell(PROGRAM)
        notebook = nbformat.v4.new_notebook(cells=[cell])
        monkeypatch.setenv("CLIENTS_PARENT", str(os.getpid()))
        resources = {"metadata": {"path": str(home)}}
        nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
        assert notebook.cells[0].outputs[-1]["text"] == "2\n"
    else:
        (home / "program.py").write_text(PROGRAM)
        process = start(home, program=("program.py",) if kind == "script" else ("-i", "-q"))
        said = process.communicate(PROGRAM if kind == "interpreter" else "", timeout=300)
        assert process.returncode == 0, said[1]
        assert said[0].splitlines()[-1].endswith("2"), said
    assert (home / "times").read_text() == "once "
    assert list(home.glob("*.worker"))
    check_same(home, whole)


def list_folder(home: Path) -> Mapping[str, tuple[int, int]]:
    """Look at all files of the sweep's folder: when each was written, and its size."""
    found = {}
    for path in (home / "out").rglob("*"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        found[str(path)] = (status.st_mtime_ns, status.st_size)
    return found


def live(home: Path, changes: int, *options: str) -> bool:
    """Start the sweep, kill it when its folder has changed so often; whether it was killed."""
    process = start(home, *options)
    seen = list_folder(home)
    while process.poll() is None and changes:
        now = list_folder(home)
        changes -= now != seen
        seen = now
        time.sleep(0.0005)
    process.kill()
    said = process.communicate(timeout=60)[1]
    assert process.returncode in (0, -signal.SIGKILL), said
    return process.returncode != 0


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_killed_at_many_moments(options: tuple[str, ...], home: Path, whole: xr.Dataset) -> None:
    """One folder is taken up again and again, until it is finished."""
    options = (*options, "--checkpoint-every", "5")
    kills = sum(live(home, changes, *options) for changes in (1, 2, 4, 7, 12))
    assert kills >= 3
    finish(home, *options)
    check_same(home, whole)
