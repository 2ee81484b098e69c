"""Programs that tests start with their imports done are like those that Python starts itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.programs import Program, run
from support.stopped_sweeps import same

from otafl import open_results

pytestmark = pytest.mark.slow

SCENARIO = """\
name: started
data: {name: digits, train_samples: 300}
model: {name: mlp, hidden: [4]}
channel: {name: rayleigh, snr_db: 5}
devices: {count: 4}
training: {rounds: 3}
engine: {device: cpu, threads: 1}
"""

READY = "import signal, sys, time; print('ready', flush=True); "


def start_really(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True)


@pytest.fixture(params=[start_really, run], ids=["started", "forked"])
def begin(request: pytest.FixtureRequest) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Both ways to start a program, for what must hold of both."""
    return request.param


def test_a_command_writes_the_same_either_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("started.yaml").write_text(SCENARIO)
    results = []
    for one in (start_really, run):
        done = one("-m", "otafl", "run", "started.yaml", "--out", "r.nc", "--quiet")
        results.append((done.returncode, done.stdout, done.stderr, open_results("r.nc").load()))
        Path("r.nc").unlink()
    (*said, result), (*said_forked, forked) = results
    assert said_forked == said
    assert said[0] == 0
    same(forked, result)
    assert {**forked.attrs, "created": 0} == {**result.attrs, "created": 0}


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("pass", (0, "", "")),
        ("print('out', end=''); sys.exit(3)", (3, "out", "")),
        ("sys.exit('a sentence')", (1, "", "a sentence\n")),
        ("import atexit; atexit.register(print, 'last'); print('first')", (0, "first\nlast\n", "")),
        ("print('out', flush=True); os._exit(4)", (4, "out\n", "")),
        ("os.kill(os.getpid(), signal.SIGKILL)", (-signal.SIGKILL, "", "")),
    ],
)
@pytest.mark.usefixtures("signals_arrive")
def test_how_a_program_ends(code: str, left: tuple[int, str, str], begin: Callable) -> None:
    done = begin("-c", f"import os, signal, sys; {code}")
    assert (done.returncode, done.stdout, done.stderr) == left


def wait_for(file: Path, text: str) -> None:
    end = time.monotonic() + 60
    while text not in file.read_text():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


@pytest.mark.usefixtures("signals_arrive")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_reaches_the_program_only(number: signal.Signals, tmp_path: Path) -> None:
    """And ends it; the next program begins as before."""
    with (tmp_path / "out").open("wb") as out:
        program = Program("-c", READY + "time.sleep(60)", stdout=out, stderr=subprocess.DEVNULL)
    wait_for(tmp_path / "out", "ready")
    assert program.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.01)
    program.send_signal(number)
    assert program.wait(60) == program.poll() == -number
    with pytest.raises(ProcessLookupError):
        os.kill(program.pid, 0)
    program.send_signal(number)  # which does nothing
    assert run("-c", "print(1)").stdout == "1\n"


@pytest.mark.parametrize("name", ["PYTHONWARNINGS", "OMP_NUM_THREADS", "MPLBACKEND"])
def test_what_is_read_at_the_start_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "7")
    with pytest.raises(ValueError, match=f"{name} is read when a program starts"):
        run("-c", "pass")


def test_another_package_is_refused(tmp_path: Path) -> None:
    (tmp_path / "otafl").mkdir()
    (tmp_path / "otafl" / "__init__.py").touch()
    for elsewhere in ({"cwd": tmp_path}, {"env": os.environ | {"PYTHONPATH": str(tmp_path)}}):
        done = run("-m", "otafl", "list", **({"cwd": "/"} | elsewhere))
        assert done.returncode == 1
        assert done.stderr.endswith("use subprocess\n")
