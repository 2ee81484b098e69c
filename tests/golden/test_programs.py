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
        ("sys.exit(False)", (0, "", "")),
        ("import atexit; atexit.register(print, 'last'); print('first')", (0, "first\nlast\n", "")),
        ("print('out', flush=True); os._exit(4)", (4, "out\n", "")),
        ("os.kill(os.getpid(), signal.SIGKILL)", (-signal.SIGKILL, "", "")),
        ("os.kill(os.getpid(), signal.SIGTERM)", (-signal.SIGTERM, "", "")),
        ("threading.Timer(0.1, print, ['late']).start(); sys.exit(5)", (5, "late\n", "")),
        ("print(sys.argv, __name__, sys.path[0] == '')", (0, "['-c'] __main__ True\n", "")),
        ("print(repr(signal.getsignal(signal.SIGHUP)))", (0, "<Handlers.SIG_DFL: 0>\n", "")),
        ("print(sys.stdin.read() == '', sys.stdout.isatty())", (0, "True False\n", "")),
    ],
)
@pytest.mark.usefixtures("signals_arrive")
def test_how_a_program_ends(code: str, left: tuple[int, str, str], begin: Callable) -> None:
    done = begin("-c", f"import os, signal, sys, threading; {code}")
    assert (done.returncode, done.stdout, done.stderr) == left


@pytest.mark.usefixtures("signals_arrive")
@pytest.mark.parametrize(
    ("code", "ends_with"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero\n"),
        ("import os; os.kill(os.getpid(), 2); time.sleep(9)", "KeyboardInterrupt\n"),
    ],
)
def test_an_error_has_a_traceback(code: str, ends_with: str, begin: Callable) -> None:
    done = begin("-c", f"import time; {code}")
    assert done.returncode == (1 if "1 / 0" in code else -signal.SIGINT)
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith(ends_with)


def test_a_file_and_a_module_find_what_lies_beside_them(tmp_path: Path, begin: Callable) -> None:
    (tmp_path / "beside.py").write_text("import sys\nprint(__name__, len(sys.argv))\n")
    (tmp_path / "begun.py").write_text("import beside, sys\nprint(__name__, sys.argv[1:])\n")
    done = begin(str(tmp_path / "begun.py"), "x", "-y")
    assert (done.stdout, done.stderr) == ("beside 3\n__main__ ['x', '-y']\n", "")


def wait_for(file: Path, text: str) -> None:
    end = time.monotonic() + 60
    while text not in file.read_text():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


@pytest.mark.usefixtures("signals_arrive")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
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


def test_what_the_tests_ignore_a_program_ignores(monkeypatch: pytest.MonkeyPatch) -> None:
    """As below `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        done = run("-c", "import os, signal; os.kill(os.getpid(), signal.SIGHUP); print('alive')")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (done.returncode, done.stdout) == (0, "alive\n")


def test_a_group_of_its_own(tmp_path: Path) -> None:
    code = "import os; print(os.getpid() == os.getsid(0) == os.getpgrp())"
    assert run("-c", code, start_new_session=True).stdout == "True\n"
    assert run("-c", "import os; print(os.getpgrp())").stdout == f"{os.getpgrp()}\n"


def test_folder_environment_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTAFL_TEST", "\udcff here")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("HOME", raising=False)
    code = (
        "import os, tempfile; print(os.getcwd() == tempfile.gettempdir(), 'HOME' in os.environ); "
        "print(ascii(os.getenv('OTAFL_TEST'))); "
        "os.write(17, b'written'); os.system('echo $OTAFL_CALL >&2')"
    )
    with Path("file").open("wb") as file:
        done = run("-c", code, files={17: file.fileno()})
        assert (done.stdout, done.stderr) == ("True False\n'\\udcff here'\n", "\n")
        environment = os.environ | {"OTAFL_TEST": "", "OTAFL_CALL": "called", "HOME": "/"}
        done = run("-c", code, cwd="/", env=environment, files={17: file.fileno()})
        assert (done.stdout, done.stderr) == ("False True\n''\n", "called\n")
    assert Path("file").read_text() == "writtenwritten"


def test_programs_share_nothing() -> None:
    """Neither what one has imported, set or drawn, nor the descriptors of another."""
    code = (
        "import os, random, sys, numpy as np, torch, otafl; "
        "print(hasattr(otafl, 'marked'), len(os.listdir('/proc/self/fd'))); "
        "print(random.random(), np.random.rand(), float(torch.rand(1)), os.getpid()); "
        "otafl.marked = True; torch.manual_seed(1); sys.stdout.flush()"
    )
    (first, drawn), (second, again) = (run("-c", code).stdout.splitlines() for _ in range(2))
    started = start_really("-c", code).stdout.splitlines()[0]
    assert first == second == started
    assert not set(drawn.split()) & set(again.split())


def test_its_own_programs_are_real(tmp_path: Path) -> None:
    """Threads, pools of processes and other programs work as in any other program."""
    (tmp_path / "pools.py").write_text(
        "import multiprocessing, subprocess, sys, torch\n"
        "def double(x):\n"
        "    return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    print(multiprocessing.current_process().daemon, multiprocessing.parent_process())\n"
        "    for method in ('fork', 'spawn', 'forkserver'):\n"
        "        with multiprocessing.get_context(method).Pool(1) as pool:\n"
        "            print(pool.map(double, [1, 2]))\n"
        "    torch.set_num_threads(2)\n"
        "    print(float((torch.ones(500, 500) @ torch.ones(500, 500)).sum()))\n"
        "    print(subprocess.run([sys.executable, '-c', 'exit(7)']).returncode, flush=True)\n"
    )
    done = run(tmp_path / "pools.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n")[:-1] == ["False None", *3 * ["[2, 4]"], "125000000.0", "7"]


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
