"""Streams that are closed, full or of few letters cost words, never a result."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.programs import run

from otafl import cli, open_results
from otafl.scenario import ScenarioError, load_scenario

pytestmark = pytest.mark.exact

OTAFL = (sys.executable, "-m", "otafl")
FULL = "/dev/full"
SCENARIO = """
name: small
data: digits
model: softmax_regression
training: {rounds: 2}
devices: {count: 3}
trials: 2
"""


def call(
    *args: str | Path, redirect: str = "", words: Sequence[str] = OTAFL, **env: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command with its streams as a shell redirects them."""
    shell = f'exec "$@" {redirect}'
    command = ["sh", "-c", shell, "sh", *words, *map(str, args)]
    return subprocess.run(command, capture_output=True, env=os.environ | env, timeout=300)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.mark.parametrize("args", [["list"], ["--help"]])
def test_a_full_disk_is_told_in_a_sentence(args: list[str]) -> None:
    ended = call(*args, redirect=f"> {FULL}")
    assert ended.returncode == 2
    assert ended.stderr.decode() == (
        "otafl: error: standard output: cannot be written (No space left on device); what was "
        "computed is kept\n"
    )


@pytest.mark.parametrize("redirect", ["<&- 2>&-", f"2> {FULL}"])
def test_without_stderr_a_command_goes_on(redirect: str) -> None:
    ended = call("list", redirect=redirect)
    assert ended.returncode == 0
    assert b"algorithm" in ended.stdout
    assert call("list", "nothing", redirect=redirect).returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize(("stream", "code"), [("stdout", 2), ("stderr", 0)])
def test_a_run_on_a_full_disk_keeps_its_result(
    stream: str, code: int, small: Path, tmp_path: Path
) -> None:
    with open(FULL, "wb") as full:
        ended = run("-m", "otafl", "run", small, "--out", tmp_path / "r.nc", **{stream: full})
    assert ended.returncode == code
    assert open_results(tmp_path / "r.nc").attrs["complete"] == 1


@pytest.mark.slow
def limit(option: str) -> tuple[str, ...]:
    """Return the words of the command with a limit of the shell."""
    return ("sh", "-c", f'ulimit {option}; exec "$@"', "sh", *OTAFL)


def test_a_limit_of_files_keeps_what_is_finished(small: Path, tmp_path: Path) -> None:
    """netCDF and torch hide the system's reason; the first part fits, the second does not."""
    folder = tmp_path / "sweep"
    args = ["devices.count=1400", "training.eval_every=1", "sweep={training.rounds: [1, 30]}"]
    keys = [word for one in args for word in ("--set", one)]
    ended = call("sweep", small, "-q", "--out", folder, *keys, words=limit("-f 2000"))
    assert ended.returncode == 2
    said = ended.stderr.decode().splitlines()[-1]
    assert "cannot be written: File too large" in said
    kept = len(list((folder / "parts").glob("*.nc")))
    assert f"{kept} finished part" in said
    assert kept
    args = ["-q", "--checkpoint-every", "1", "--set", "model={name: mlp, hidden: [4000]}"]
    ended = call("run", small, *args, "--out", tmp_path / "a.nc", words=limit("-f 2000"))
    assert ended.returncode == 2
    assert ".pt: cannot be written: File too large" in ended.stderr.decode()


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (limit("-v 700000"), {}, "684 MiB of address space"),
        (OTAFL, {"MPLBACKEND": "nonsense"}, "MPLBACKEND: expected a backend"),
    ],
)
def test_surroundings_are_refused_before_anything_is_computed(
    words: tuple[str, ...], variables: dict[str, str], said: str, small: Path, tmp_path: Path
) -> None:
    ended = call("run", small, "-q", "--out", tmp_path / "a.nc", words=words, **variables)
    assert ended.returncode == 2
    assert said in ended.stderr.decode()
    assert ended.stderr.decode().count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


def test_a_terminal_of_few_letters(small: Path, tmp_path: Path) -> None:
    with open(tmp_path / "said", "wb") as said:
        command = "-m", "otafl", "run", small, "--out", tmp_path / "r.nc"
        ended = run(*command, stdout=said, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert ended.returncode == 0, ended.stderr
    assert "result: " in (tmp_path / "said").read_bytes().decode("ascii")


@pytest.mark.slow
def test_names_that_are_no_utf_8(small: Path, tmp_path: Path) -> None:
    """A result cannot have one, which is said before anything is computed; a page can."""
    names = [os.fsdecode(os.fsencode(tmp_path) + name) for name in (b"/\xff.nc", b"/\xff.html")]
    utf_8 = {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8:strict"}
    refused = call("run", small, "--out", names[0], **utf_8)
    assert refused.returncode == 2
    assert b"NetCDF files need names in UTF-8" in refused.stderr
    assert b"rounds" not in refused.stderr
    plain = tmp_path / "r.nc"
    for args in (["run", small, "--out", plain], ["report", plain, "--out", names[1]]):
        ended = call(*args, **utf_8)
        assert ended.returncode == 0, ended.stderr.decode(errors="replace")
    assert Path(names[1]).stat().st_size > 1000
    missing = call("show", os.fsdecode(b"\xfe.nc"), **utf_8)
    assert missing.returncode == 2
    assert b"no such file" in missing.stderr


@pytest.mark.parametrize(
    "args", [["show", "x.nc", "--csv", ""], ["sweep", "x.yaml", "--scheduler", ""], ["run", ""]]
)
def test_an_empty_argument_is_refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(args)
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said == f"otafl: error: expected a value after {args[-2]}, got an empty text; give " + (
        "one, or leave it out\n"
    )


def test_an_escape_beyond_unicode(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(r'name: "\U00110000"')
    with pytest.raises(ScenarioError, match=r"s\.yaml:1:10: bad YAML.*beyond Unicode"):
        load_scenario(tmp_path / "s.yaml")
