"""`otafl check --no-code`: everything but the code that a scenario names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from contract.small import scenario
from support.own_modules import write_custom_module

from otafl import cli
from otafl.scenario import to_yaml

pytestmark = pytest.mark.exact

MARK = "open('was_run', 'w').close()\n"

OWN = {
    "algorithm": {"name": "not_yours:Method", "a": 1},
    "channel": {"name": "not_yours:channel", "a": 1},
    "power": {"name": "not_yours:policy", "a": 1},
    "codec": {"name": "not_yours:Codec", "keep": 0.1},
    "csi": {"name": "not_yours:Csi"},
    "server": {"name": "not_yours:Server"},
    "downlink": {"name": "not_yours:Downlink"},
    "model": {"name": "not_yours:model", "a": 1},
    "data": {"name": "not_yours:data", "a": 1},
    "track": {"name": "not_yours:track"},
    "devices.selection": {"name": "not_yours:Selection"},
    "data.partition": {"name": "not_yours:partition"},
}


def call(*args: object) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main([str(arg) for arg in args])
    return int(left.value.code or 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with write_custom_module("not_yours", MARK, tmp_path, monkeypatch) as folder:
        yield folder
        assert not (folder / "was_run").exists()


def file(folder: Path, keys: dict[str, Any], more: dict[str, Any] | None = None) -> Path:
    tree = yaml.safe_load(to_yaml(scenario({})))
    tree.pop("sweep", None)
    for key, value in (keys | (more or {})).items():
        *above, last = key.split(".")
        at = tree
        for part in above:
            at = at.setdefault(part, {})
        at[last] = value
    (folder / "s.yaml").write_text(yaml.safe_dump(tree))
    return folder / "s.yaml"


@pytest.mark.parametrize("key", list(OWN)[::3])
def test_code_is_not_imported_and_named(
    key: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("check", file(folder, {key: OWN[key]}), "--no-code") == 0
    said = capsys.readouterr()
    assert OWN[key]["name"] in said.out
    assert "nothing wrong without its code; 1 point" in said.err
    assert f"not checked: {key}.name: '{OWN[key]['name']}', its keys" in said.err
    assert "not_yours" not in sys.modules


def test_it_is_imported_otherwise(folder: Path) -> None:
    assert call("check", file(folder, {"power": "not_yours:policy", "channel": "awgn"})) == 2
    (folder / "was_run").unlink()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"training.rounds": 0}, "training.rounds"),
        ({"channel": {"name": "awgn", "snr": 1}}, "channel.snr"),
        ({"devices.count": 4, "data.partition": {"name": "shards", "per_device": 10**6}}, "data"),
        ({"server": "momentum", "algorithm": "local_only"}, "server"),
    ],
)
def test_the_rest_is_checked(
    wrong: dict[str, Any], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file(folder, {"codec": {"name": "not_yours:Codec"}}, wrong)
    assert call("check", path, "--no-code") == 2
    assert said in capsys.readouterr().err


def test_a_sweep_over_code_and_a_folder_s_copy(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder's copy is data, and is looked at as such."""
    sweep = {"power": ["gbma", "not_yours:policy"], "seed": [1, 2]}
    path = file(folder, {"power": "gbma", "sweep": sweep})
    (folder / "sweep.json").write_text("{}")
    assert call("check", path, "--no-code") == 0
    said = capsys.readouterr().err
    assert "4 points" in said
    assert said.count("not checked: power.name: 'not_yours:policy'") == 1
    assert call("check", path) == 2
    assert "names 'not_yours:policy'" in capsys.readouterr().err


def test_without_code_everything_is_valid(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("check", file(folder, {}), "--no-code") == 0
    assert "valid; 1 point" in capsys.readouterr().err


@pytest.mark.parametrize("other", ["--trust", "--dry-run"])
def test_it_contradicts_what_runs_code(
    other: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("check", file(folder, {}), "--no-code", other) == 2
    assert f"--no-code: {other} runs the code" in capsys.readouterr().err


def test_check_shows_epochs_in_place_of_steps(folder: Path, capsys: pytest.CaptureFixture) -> None:
    path = folder / "epochs.yaml"
    path.write_text("name: epochs\ntraining: {local_epochs: 2}\n")
    assert call("check", path) == 0
    shown = capsys.readouterr().out
    assert "local_epochs: 2" in shown
    assert "local_steps" not in shown
