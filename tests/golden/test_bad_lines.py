"""Command lines that cannot be meant: exit code 2, one sentence, no traceback."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from otafl import cli

pytestmark = pytest.mark.slow

SMALL = """\
name: small
model: {name: mlp, hidden: [4]}
devices: {count: 3}
training: {rounds: 2, batch_size: 4}
output: {save_timeline: true, save_models: true}
"""
LONG = "x" * 5000

SCENARIO_LINES = """
COMMAND
COMMAND no.yaml
COMMAND folder
COMMAND text.txt
COMMAND r.nc
COMMAND cut.nc
COMMAND sw
COMMAND empty
COMMAND /dev/zero
COMMAND LONG
COMMAND s.yaml more
COMMAND s.yaml --nope
COMMAND s.yaml --set training
COMMAND s.yaml --set =3
COMMAND s.yaml --set a..b=3
COMMAND s.yaml --set training=[1
COMMAND s.yaml --set training.rounds.x=3
COMMAND s.yaml --set sweep=3
COMMAND s.yaml --set sweep.=[1]
COMMAND s.yaml --set sweep.zip=[1]
COMMAND s.yaml --set 'trials=&a [*a]'
COMMAND s.yaml --set name=LONG
COMMAND s.yaml --set LONG=1
COMMAND s.yaml --set 'name="a\\0b"'
COMMAND s.yaml --set output.folder=
"""
"""Of check, run and sweep."""

RUN_LINES = """
COMMAND s.yaml --out text.txt/r.nc
COMMAND s.yaml --out /proc/no/r.nc
COMMAND s.yaml --out LONG.nc
COMMAND s.yaml --out LONG/r.nc
COMMAND s.yaml --out text.txt
COMMAND s.yaml --device tpu
COMMAND s.yaml --checkpoint-every -1
COMMAND s.yaml --checkpoint-every x
COMMAND s.yaml --set output.folder=text.txt
COMMAND s.yaml --set output.folder=/proc/no
"""
"""Of run and sweep."""

RESULT_LINES = """
COMMAND
COMMAND no.nc
COMMAND s.yaml
COMMAND text.txt
COMMAND folder
COMMAND empty
COMMAND cut.nc
COMMAND /dev/zero
COMMAND r.models
COMMAND LONG
COMMAND r.nc --nope
"""
"""Of show, plot, report and timeline."""

OWN_LINES = """
fly
list no-table
list power more
check
check --schema a b
run s.yaml --out folder.nc
sweep s.yaml --workers -1
sweep s.yaml --workers 2 --scheduler tcp://127.0.0.1:1
run s.yaml --workers 2 --scheduler tcp://127.0.0.1:1
sweep s.yaml --scheduler nonsense
sweep s.yaml --scheduler tcp://127.0.0.1:1
sweep s.yaml --scheduler s.yaml
sweep s.yaml --scheduler tcp://[::
sweep s.yaml --scheduler tcp://a:99999999
show r.nc --csv folder
show r.nc --csv text.txt/x
show r.nc --csv LONG
diff r.nc
diff r.nc no.nc
diff r.nc folder
diff text.txt r.nc
diff cut.nc r.nc
diff no.yaml r.nc
diff r.nc r.nc --tolerance x
diff r.nc r.nc --tolerance -1
diff r.nc r.nc --tolerance nan
convert r.nc
convert r.nc x.txt
convert r.nc r.nc
convert r.nc text.txt/x.csv
convert r.nc LONG.csv
convert r.nc folder.nc
convert r.nc folder.nc --force
convert r.nc /proc/no.csv
convert r.nc /proc/no.nc
convert r.nc /proc/no.zarr
convert s.yaml x.csv
convert folder x.nc
convert r.nc x.csv --variables nope
export r.nc
export s.yaml --to pytorch -o a.pt2
export r.nc --to x -o a.onnx
export r.nc --to onnx
export r.nc --to pytorch -o text.txt/a.pt2
export r.nc --to pytorch -o a.pt2 --view x
export r.nc --to pytorch -o a.pt2 --trial 9
export r.nc --to pytorch -o a.pt2 --device 9
export r.nc --to pytorch -o a.pt2 --quantise dynamic
export sw --to pytorch -o a.pt2
export sw --to pytorch -o a.pt2 --sel snr_db
export sw --to pytorch -o a.pt2 --sel snr_db=x
export sw --to pytorch -o a.pt2 --sel snr_db=99
export sw --to pytorch -o a.pt2 --sel nope=1
plot sw --kind x
plot sw --y nope
plot sw --y ''
plot sw --x nope
plot sw --hue nope
plot sw --facet nope
plot sw --x power --hue power
plot sw --sel snr_db
plot sw --sel =3
plot sw --sel snr_db=
plot sw --sel snr_db=77
plot sw --sel snr_db=x
plot sw --sel snr_db=nan
plot sw --sel nope=3
plot sw --sel trial=9
plot sw --sel round=9999
plot sw --sel power=3
plot sw --kind pareto --x nope
plot sw --kind cdf --x nope
plot sw --kind heatmap --x nope --y snr_db
plot sw -o x.bmp
plot sw -o text.txt/x.png
plot sw -o LONG.png
plot sw --csv folder
plot sw --csv text.txt/x
report r.nc --out x.txt
report r.nc --out folder
report r.nc --out text.txt/x.html
report r.nc --out LONG.html
timeline r.nc --trial 9
timeline r.nc --trial x
timeline r.nc --sel x=1
timeline r.nc --from x
timeline r.nc --from 9 --until 1
timeline r.nc --from nan
timeline r.nc --devices x
timeline r.nc --devices 9-0
timeline r.nc --devices 99
timeline r.nc --devices 0-99999999999
timeline r.nc --devices ''
timeline r.nc --out x.bmp
timeline r.nc --csv folder
validate --device tpu
validate --only no-such-law
validate --json text.txt/x
data
data x
data get
data get x
data get mnist --root text.txt
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
    (home / "s.yaml").write_text(SMALL)
    (home / "sw.yaml").write_text(
        SMALL + "sweep: {channel.snr_db: [0, 10], power.name: [gbma, ci]}\n"
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


@pytest.mark.parametrize("line", lines())
def test_one_sentence_and_exit_code_2(
    home: Path,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.chdir(home)
    there = sorted(home.iterdir())
    with pytest.raises(SystemExit) as left:
        cli.main(shlex.split(line.replace("LONG", LONG)))
    said = capsys.readouterr()
    assert left.value.code == 2
    if "Usage: " not in said.err:
        *before, sentence = said.err.splitlines()
        assert sentence.startswith("otafl: error: ")
        assert not [one for one in before if one.startswith("otafl: ")]  # progress of a report
    assert "Traceback" not in said.err
    assert "delete" not in said.err
    if "--root" not in line and "--scheduler" not in line:
        assert [path for path in home.iterdir() if path not in there] == []


def test_a_scenario_for_a_result_names_the_command(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(home)
    commands = (
        "show s.yaml",
        "plot s.yaml",
        "report s.yaml",
        "timeline s.yaml",
        "convert s.yaml x.csv",
        "export s.yaml --to pytorch -o a.pt2",
    )
    for line in commands:
        with pytest.raises(SystemExit):
            cli.main(line.split())
        said = capsys.readouterr().err
        assert "s.yaml: is a scenario; `otafl run s.yaml` or `otafl sweep s.yaml`" in said
    shutil.copy("s.yaml", "noted")
    with pytest.raises(SystemExit):
        cli.main(["diff", "noted", "r.nc"])
    assert "noted: is a scenario" in capsys.readouterr().err
    Path("noted").unlink()


@pytest.mark.parametrize("command", ["check", "run", "sweep"])
def test_a_result_for_a_scenario_names_the_command(
    home: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(home)
    for result, said in (
        ("r.nc", "r.nc: is a result; `otafl show r.nc` summarises it"),
        ("sw", "sw: is a folder; `otafl show sw` shows a sweep, sw/scenario.yaml is its scenario"),
    ):
        with pytest.raises(SystemExit):
            cli.main([command, result])
        assert capsys.readouterr().err == f"otafl: error: {said}\n"
