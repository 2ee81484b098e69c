"""`otafl new`: what it lists, writes and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support.scenarios import SCENARIO_FILES, SCENARIOS

from otafl import cli, load_scenario
from otafl.cli.new import list_shipped
from otafl.core.presets import list_presets

SHIPPED = list_shipped()
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C, where PyYAML has it, takes a tenth of the time."""


def call(*args: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["new", *args])
    assert (left.value.code or 0) == code


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_scenario_is_found_by_its_name() -> None:
    assert sorted(list_shipped().values()) == SCENARIO_FILES
    assert next(iter(list_shipped())) == "quickstart"


@pytest.mark.parametrize("name", list(SHIPPED)[::40])
def test_a_copy_says_the_same_and_names_itself(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Only the name of the file, and so of its results, is another in a copy."""
    call(f"scenarios/{name}.yaml")
    call(name, "--out", "folder/mine.yaml")
    text, mine = SHIPPED[name].read_text(), Path("folder/mine.yaml").read_text()
    original = yaml.load(text, LOADER)
    assert yaml.load(Path(f"{name}.yaml").read_text(), LOADER) == original
    assert yaml.load(mine, LOADER) == original | {"name": "mine"}
    assert f"{name}.yaml" not in mine
    assert mine.count(" folder/mine.yaml") == text.count(f"/{name}.yaml") > 0
    assert "next: otafl check folder/mine.yaml; otafl run folder/mine" in capsys.readouterr().out


def test_what_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "quickstart.yaml").write_text("mine")
    (tmp_path / "link.yaml").symlink_to("nowhere")
    call("quickstart", code=2)
    call("quickstart", "--out", "link.yaml", code=2)
    assert (tmp_path / "quickstart.yaml").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()
    assert capsys.readouterr().err.startswith("otafl: error: quickstart.yaml: is there already")


def test_a_name_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    call("quikstart.yaml", code=2)
    call(code=2)
    typo, nothing = capsys.readouterr().err.splitlines()
    assert "no scenario 'quikstart.yaml'; did you mean 'quickstart'?" in typo
    assert "`otafl new --list`" in nothing
    assert not list(tmp_path.iterdir())


def test_the_list_has_a_sentence_of_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    call("--list")
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line]
    titles = [line[0] for line in lines if len(line) == 1]
    studies = {f"studies/{file.parent.name}" for file in SCENARIO_FILES if file.parent != SCENARIOS}
    assert titles == ["start", *sorted(studies)]
    sentences = dict(line for line in lines if len(line) > 1)
    assert set(sentences) == {*list_shipped(), *list_presets()}
    assert sentences["quickstart"].rstrip().endswith("all of them transmit at once.")
    assert sentences["fedrlr_fig5"].rstrip() == "FedRLR, Fig. 5: mini-batch sizes."
    for text in sentences.values():
        assert text.rstrip()[-1] in ".?"


def test_a_preset_is_extended() -> None:
    name = next(iter(list_presets()))
    call(name)
    call(name, "--out", "folder/mine.yaml")
    assert load_scenario(f"{name}.yaml").name == name
    mine = load_scenario("folder/mine.yaml")
    assert mine.name == "mine"
    assert mine.channel == load_scenario({"name": "a", "extends": name}).channel
