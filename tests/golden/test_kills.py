"""Programs that are killed: of a sweep whatever was finished is kept, and the same command goes on
to the same numbers, bit by bit."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from contract.test_sweeps import same
from support.programs import Program, run

from otafl import open_results, sweeping
from otafl.scenario import load_scenario

SCENARIO = """\
name: killed
data: {name: digits, train_samples: 300}
model: {name: mlp, hidden: [4]}
server: momentum
channel: {name: rician, snr_db: 5, speed_kmh: 0.3}
csi: delay
power: {name: lyapunov, average_db: -6}
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
  training.batch_size: [2, 4, 6]
"""
"""Everything here keeps something from round to round. At 3 km/h the outdated phases are random,
and the model diverges: NaN would equal NaN."""

KILLS = int(os.environ.get("OTAFL_TEST_KILLS", "8"))
"""More take longer and see more."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "killed.yaml"
    path.write_text(SCENARIO)
    return path


def ended(process: Program) -> str:
    """What the process said on stderr until it ended."""
    return process.communicate(timeout=120)[1]


@pytest.mark.slow
def test_killed_at_many_moments(file: Path, tmp_path: Path) -> None:
    """With checkpoints; the numbers are those of a sweep that nobody disturbed."""
    told = run(Path(__file__).with_name("kills.py"), file, tmp_path, 0, KILLS, timeout=None)
    assert told.returncode == 0, told.stderr
    kills, kept = map(int, told.stdout.split())
    assert kills == KILLS
    assert kept >= KILLS // 4  # lives that went on from something
    whole = open_results(tmp_path / "whole")
    assert float(whole["updates_lost"].max()) > 0
    for folder in tmp_path.glob("killed[0-9]*"):
        same(open_results(folder), whole)
        assert names(folder) == names(tmp_path / "whole")


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


ROUNDS = 200


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A sweep of four stacks that takes some seconds."""
    tree = yaml.safe_load(SCENARIO)
    tree["training"] |= {"rounds": ROUNDS, "eval_every": ROUNDS}
    tree["sweep"] = {"training.batch_size": [2, 3, 4, 5]}
    tree["output"] = {}
    path = tmp_path / "long.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts programs, which are ended with the test."""
    started = []

    def one(*command: object) -> Program:
        process = Program(
            *("-m", *command),
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield one
    for process in started:
        for child in _children(process):
            child.kill()
        process.kill()
        process.communicate()


def _children(process: Program) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def until(condition: Callable[[], object], seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("parts/*.nc")}


@pytest.mark.slow
def test_a_worker_and_then_the_client_are_killed(long: Path, tmp_path: Path, start: Start) -> None:
    """The stack of the worker is computed by another one. The client's workers end with it, and
    what was finished stays."""
    folder = tmp_path / "out"
    command = ["otafl.cli", "sweep", long, "--out", folder, "--workers", 2]
    client = start(*command, "--checkpoint-every", 20)
    until(lambda: list(folder.glob("running/*.checkpoint.pt")))
    workers = [
        one for one in _children(client) if "otafl.sweeping.worker" in " ".join(one.cmdline())
    ]
    assert len(workers) == 2
    workers[0].kill()
    until(lambda: parts(folder))
    everyone = _children(client)
    assert client.poll() is None
    client.kill()
    until(lambda: not any(one.is_running() and one.status() != "zombie" for one in everyone))
    kept = parts(folder)
    assert 0 < len(kept) < 4
    scenario = load_scenario(long)
    whole = sweeping.sweep(scenario, tmp_path / "whole").load()
    result = sweeping.sweep(scenario, folder, checkpoint_every=20)
    same(result, whole)
    assert {name: parts(folder)[name] for name in kept} == kept


@pytest.mark.slow
def test_the_scheduler_of_a_cluster_is_killed(long: Path, tmp_path: Path, start: Start) -> None:
    """The client says so and ends with 2; the same command goes on at another scheduler."""
    folder = tmp_path / "out"

    def scheduler() -> tuple[Program, str]:
        name = tmp_path / f"scheduler{time.monotonic_ns()}.json"
        options = ["--host", "127.0.0.1", "--port", 0, "--no-dashboard", "--scheduler-file", name]
        process = start("distributed.cli.dask_scheduler", *options)
        until(lambda: name.exists() and name.read_text().endswith("}"))  # written whole
        address = yaml.safe_load(name.read_text())["address"]
        start(
            "distributed.cli.dask_worker", address, "--nthreads", 1, "--no-dashboard", "--no-nanny"
        )
        return process, address

    process, address = scheduler()
    command = ["otafl.cli", "sweep", long, "--out", folder, "--checkpoint-every", 20]
    client = start(*command, "--scheduler", address)
    until(lambda: list(folder.glob("running/*.checkpoint.pt")))
    process.kill()
    said = ended(client)
    assert client.returncode == 2
    assert re.search(r"otafl: error: the scheduler .* cannot be reached any more", said)
    assert "Traceback" not in said
    _, address = scheduler()
    client = start(*command, "--scheduler", address)
    said = ended(client)
    assert client.returncode == 0, said
    same(open_results(folder), sweeping.sweep(load_scenario(long), tmp_path / "whole"))


@pytest.fixture
def dashboards_port() -> Iterator[None]:
    """Takes the port of Dask's dashboard, if nobody has it."""
    with socket.socket() as taken:
        with contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", 8787))
            taken.listen()
        yield


def send(number: signal.Signals, client: Program, whole_group: bool) -> None:
    """Sends a signal to the client, or to its group as a terminal does."""
    (os.killpg if whole_group else os.kill)(client.pid, number)


@pytest.mark.slow
@pytest.mark.usefixtures("signals_arrive", "dashboards_port")
@pytest.mark.parametrize("whole_group", [False, True], ids=["client", "group"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_client_and_workers(
    number: signal.Signals, whole_group: bool, long: Path, tmp_path: Path, start: Start
) -> None:
    """With a sentence and nothing besides."""
    folder = tmp_path / "out"
    more = ["--workers", 2, "--quiet", "--set", "training.rounds=5000"]
    client = start("otafl.cli", "sweep", long, "--out", folder, *more)
    until(lambda: list(folder.glob("locks/[0-9]*.lock")))
    everyone = _children(client)
    assert len(everyone) == 2
    send(number, client, whole_group)
    said = ended(client)
    assert client.returncode == 128 + number
    assert re.fullmatch(
        r"otafl: interrupted; \d finished parts? kept in \S+; the same command resumes .*\n",
        said,
    )
    until(lambda: not any(one.is_running() and one.status() != "zombie" for one in everyone))
