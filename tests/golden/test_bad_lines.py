"""Command lines that cannot be meant: exit code 2, one sentence, no traceback."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from support.command import SMALL

from otafl import cli

pytestmark = pytest.mark.slow

SCENARIO = SMALL + "output: {save_timeline: true, save_models: true}\n"

LONG = "x" * 5000

SCENARIO_LINES = """
COMMAND
COMMAND no.yaml
COMMAND folder
COMMAND r.nc
COMMAND cut.nc
COMMAND sw
COMMAND /dev/zero
COMMAND LONG
COMMAND s.yaml more
COMMAND s.yaml --nope
COMMAND s.yaml --set training
COMMAND s.yaml --set training=[1
COMMAND s.yaml --set sweep=3
COMMAND s.yaml --set 'trials=&a [*a]'
COMMAND s.yaml --set 'name="a\\0b"'
"""
"""Of check, run and sweep."""

RUN_LINES = """
COMMAND s.yaml --out text.txt/r.nc
COMMAND s.yaml --out LONG.nc
COMMAND s.yaml --checkpoint-every -1
COMMAND s.yaml --set output.folder=text.txt
"""
"""Of run and sweep."""

RESULT_LINES = """
COMMAND
COMMAND no.nc
COMMAND s.yaml
COMMAND folder
COMMAND empty
COMMAND cut.nc
COMMAND /dev/zero
COMMAND LONG
COMMAND r.nc --nope
"""
"""Of show, plot, report and timeline."""

OWN_LINES = """
fly
list no-table
run s.yaml --out folder.nc
sweep s.yaml --workers -1
sweep s.yaml --workers 2 --scheduler tcp://127.0.0.1:1
sweep s.yaml --scheduler tcp://127.0.0.1:1
diff r.nc folder
diff r.nc r.nc --tolerance nan
convert r.nc /proc/no.zarr
export s.yaml --to pytorch -o a.pt2
export r.nc --to x -o a.onnx
export r.nc --to pytorch -o a.pt2 --view x
export r.nc --to pytorch -o a.pt2 --device 9
export sw --to pytorch -o a.pt2
plot sw --sel snr_db=77
report r.nc --out x.txt
timeline r.nc --from 9 --until 1
validate --device tpu
validate --only no-such-law
validate --csv text.txt/x
data x
"""


def lines() -> list[str]:
    several = {
        SCENARIO_LINES: ("check", "run", "sweep"),
        RUN_LINES: ("run", "sweep"),
        RESULT_LINES: ("show", "plot", "report", "timeline"),
        OWN_LINES: ("",),
    }
    return [
        line.replace("COMMAND", command)
        for text, commands in several.items()
        for command in commands
        for line in text.strip().splitlines()
    ]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with scenarios, results, and what is neither."""
    home = tmp_path_factory.mktemp("home")
    (home / "s.yaml").write_text(SCENARIO)
    (home / "sw.yaml").write_text(
        SCENARIO + "sweep: {channel.snr_db: [0, 10], power.name: [gbma, ci]}\n"
    )
    for command, out in (("run", "r.nc"), ("sweep", "sw")):
        file = {"run": "s.yaml", "sweep": "sw.yaml"}[command]
        with pytest.raises(SystemExit) as left:
            cli.main([command, str(home / file), "--out", str(home / out), "-q"])
        assert not left.value.code
    (home / "cut.nc").write_bytes((home / "r.nc").read_bytes()[:2000])
    (home / "text.txt").write_text("hello")
    (home / "empty").write_text("")
    (home / "folder").mkdir()
    (home / "folder.nc").mkdir()
    return home


def test_one_sentence_and_exit_code_2(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(home)
    there, wrong = sorted(home.iterdir()), {}
    for line in lines():
        with pytest.raises(SystemExit) as left:
            cli.main(shlex.split(line.replace("LONG", LONG)))
        said = capsys.readouterr().err
        *before, sentence = said.splitlines()
        told = [one for one in before if one.startswith("otafl: ")]  # progress of a report
        sound = "Usage: " in said or (sentence.startswith("otafl: error: ") and not told)
        new = [path for path in home.iterdir() if path not in there]
        if "--scheduler" in line:
            there += new
        elif new:
            sound = False
        if left.value.code != 2 or not sound or "Traceback" in said or "delete" in said:
            wrong[line] = said
    assert wrong == {}


def test_the_command_that_was_meant_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """For a scenario in the place of a result, and the other way round."""
    monkeypatch.chdir(home)
    meant = "s.yaml: is a scenario; `otafl run s.yaml` or `otafl sweep s.yaml`"
    for line, said in (
        ("show s.yaml", meant),
        ("plot s.yaml", meant),
        ("export s.yaml --to pytorch -o a.pt2", meant),
        ("run r.nc", "r.nc: is a result; `otafl show r.nc` summarises it"),
        ("run sw", "sw: is a folder; `otafl show sw` shows a sweep"),
    ):
        with pytest.raises(SystemExit):
            cli.main(line.split())
        assert said in capsys.readouterr().err
