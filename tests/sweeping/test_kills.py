"""Programs that are killed or interrupted while they compute, alone or by workers, as users see it:
processes, exit codes, finished files, and the same numbers bit by bit after the same command.

A power policy of the scenario says which process computes. It waits, or kills its process, where a
file says so, so that no test depends on how fast a machine is.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support import programs
from support.stopped_sweeps import same

import otafl

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("signals_arrive")]

END_S = 30.0
"""Within which workers end after the program that started them, on a busy machine."""

POLICY = """\
import os
import signal
import time
from pathlib import Path

import torch

HERE = Path(__file__).parent


def power(link):
    (HERE / f"{os.getpid()}.computes").touch()
    if (HERE / "kill").exists():
        (HERE / "kill").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    p = torch.conj(torch.sgn(link.h)) * (link.budget[:, None] / link.symbol_power).sqrt()
    return p, (p * link.h).abs().mean(-1).square()


def held(link):
    p = power(link)
    while (HERE / "hold").exists():
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
training: {rounds: 20, eval_every: 10, local_steps: 2, eval_samples: 40}
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


def prepare(home: Path) -> None:
    (home / "policy.py").write_text(POLICY)
    (home / "s.yaml").write_text(SCENARIO)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose sweep nobody disturbed, computed by a program without workers."""
    home = tmp_path_factory.mktemp("whole")
    prepare(home)
    finish(home)
    return home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder with the scenario and its policy; no process outlives the test."""
    prepare(tmp_path)
    yield tmp_path
    for process in list_computing(tmp_path):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def start(home: Path, *options: str) -> subprocess.Popen[str]:
    command = ("-m", "otafl.cli", "sweep", "s.yaml", "--out", "out", "--quiet", *options)
    files = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    return programs.start(*command, cwd=home, **files)


def finish(home: Path, *options: str) -> None:
    """Give the same command again, to its end."""
    (home / "hold").unlink(missing_ok=True)
    process = start(home, *options)
    said = process.communicate(timeout=600)[1]
    assert process.returncode == 0, said


def wait_until(condition: Callable[[], object], seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


def list_computing(home: Path) -> list[psutil.Process]:
    """List the processes that computed for a sweep and live.

    A process that began long after a file was written has its number from an ended one.
    """
    found = []
    for path in home.glob("*.computes"):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            process = psutil.Process(int(path.stem))
            is_own = process.create_time() < path.stat().st_mtime + 60.0
            if is_own and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def read_parts(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.glob("out/parts/*.nc")}


def list_names(home: Path) -> list[str]:
    """All files but checksums, which a file that was written at a kill lacks, and temporary ones,
    which are removed once they are old.
    """
    names = (str(path.relative_to(home)) for path in (home / "out").rglob("*"))
    return sorted(name for name in names if not name.endswith((".sha256", ".tmp")))


def check_same(home: Path, whole: Path) -> None:
    """Compare all values bit by bit, and the names of all files."""
    one, other = (otafl.open_results(place / "out") for place in (home, whole))
    same(one, other)
    assert list_names(home) == list_names(whole)


def begin_and_hold(home: Path) -> subprocess.Popen[str]:
    """Start two workers, and wait until something is finished and the rest is held."""
    (home / "hold").touch()
    client = start(home, "--workers", "2")
    wait_until(lambda: client.poll() is not None or len(read_parts(home)) == 2)
    assert client.poll() is None, client.communicate()[1]
    assert list_computing(home)
    return client


def go_on(home: Path, kept: dict[str, bytes], whole: Path) -> None:
    """All processes end, what was finished stays, and the same command ends as if undisturbed."""
    wait_until(lambda: not list_computing(home), END_S)
    finish(home, "--workers", "2")
    assert {name: read_parts(home).get(name) for name in kept} == kept
    check_same(home, whole)


def test_workers_end_with_a_killed_parent(home: Path, whole: Path) -> None:
    client = begin_and_hold(home)
    kept = read_parts(home)
    client.kill()
    client.wait()
    go_on(home, kept, whole)


@pytest.mark.parametrize(
    ("number", "whole_group"), [(signal.SIGINT, True), (signal.SIGTERM, False)]
)
def test_a_signal_ends_client_and_workers(
    number: signal.Signals, whole_group: bool, home: Path
) -> None:
    """Sent to the client, or to all as a terminal does: one sentence and nothing besides."""
    client = begin_and_hold(home)
    kept = read_parts(home)
    (os.killpg if whole_group else os.kill)(client.pid, number)
    said = client.communicate(timeout=600)[1]
    assert client.returncode == 128 + number, said
    assert re.fullmatch(r"otafl: interrupted; 2 finished parts kept in out; .* resumes .*\n", said)
    wait_until(lambda: not list_computing(home), END_S)
    assert read_parts(home) == kept


def test_the_stack_of_a_killed_worker_is_tried_again(home: Path, whole: Path) -> None:
    (home / "kill").touch()
    client = start(home, "--workers", "2")
    said = client.communicate(timeout=600)[1]
    assert client.returncode == 0, said
    assert re.search("otafl: a worker is lost .* retries stack", said)
    assert not (home / "kill").exists()
    check_same(home, whole)
