"""Scenarios that start from a preset or another file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otafl import load_scenario
from otafl.core.presets import list_presets
from otafl.scenario import ScenarioError, compute_scenario_hash, to_yaml
from otafl.scenario.yaml_source import parse

pytestmark = pytest.mark.exact

BASE = """\
name: base
channel: {name: rician, k_factor_db: 3, snr_db: 10}
power:
  name: tci
  threshold: 0.2
training: {rounds: 7, batch_size: 5}
devices: {count: 6}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "mine.yaml") -> Path:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def fail(source: Path | dict[str, Any], *overrides: str) -> tuple[str, ...]:
    with pytest.raises(ScenarioError) as error:
        load_scenario(source, overrides)
    return error.value.lines


@pytest.mark.parametrize("name", list_presets())
def test_a_preset_is_its_keys_written_out(name: str) -> None:
    """The hash of the filled-in scenario is that of the written-out one."""
    keys = {"name": "mine", "trials": 2}
    short = load_scenario(keys | {"extends": name})
    assert short == load_scenario(keys | parse(list_presets()[name].read_text()).data)
    again = load_scenario(write(to_yaml(short)))
    assert compute_scenario_hash(again) == compute_scenario_hash(short)
    assert "extends" not in to_yaml(short)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("training: {rounds: 3}", {"training": {"rounds": 3, "batch_size": 5}}),
        ("channel: {snr_db: 0}", {"channel": {"name": "rician", "k_factor_db": 3, "snr_db": 0}}),
        ("power: tci", {}),
        ("power: ci", {"power": "ci"}),
    ],
)
def test_sections_merge_unless_they_choose_another_component(
    text: str, written: dict[str, Any]
) -> None:
    expected = parse(BASE).data | written | {"name": "mine"}
    found = load_scenario(write(f"name: mine\nextends: base.yaml\n{text}\n"))
    assert found == load_scenario(expected)
    as_mapping = {"name": "mine", "extends": "base.yaml"} | parse(text).data
    assert load_scenario(as_mapping) == found


def test_a_base_has_a_base_beside_it() -> None:
    """A relative path is relative to the file that names it."""
    write("extends: ../base.yaml\ntraining: {rounds: 9}\n", "inner/middle.yaml")
    found = load_scenario(write("name: mine\nextends: inner/middle.yaml\ntrials: 2\n"))
    assert (found.training.rounds, found.training.batch_size, found.trials) == (9, 5, 2)
    assert found.name == "mine"


def test_errors_name_the_file_that_they_are_in() -> None:
    path = write("# comment\nname: mine\nextends: faulty.yaml\nchannel:\n  snr_db: ten\n")
    write("training:\n  rounds: 0\n  batch_size: 5\nchannel:\n  antennas: 0\n", "faulty.yaml")
    lines = fail(path)
    assert [line.split(": ")[:2] for line in lines] == [
        ["mine.yaml:5:3", "channel.snr_db"],
        ["faulty.yaml:2:3", "training.rounds"],
        ["faulty.yaml:5:3", "channel.antennas"],
    ]


@pytest.mark.parametrize(
    ("extends", "said"),
    [
        ("urban_mikro", "no preset 'urban_mikro'; did you mean 'urban_micro'?"),
        ("no.yaml", "no.yaml: cannot be read (No such file or directory)"),
        ("mine.yaml", "mine.yaml: files extend each other in a circle"),
        ("bad.yaml", "bad.yaml:1:1: is a list"),
    ],
)
def test_a_base_that_is_none(extends: str, said: str) -> None:
    write("- 1\n", "bad.yaml")
    lines = fail(write(f"name: mine\nextends: {extends}\n"))
    assert len(lines) == 1
    assert f"extends: {said}" in lines[0]
    assert lines[0].startswith("mine.yaml:2:1: ")


def test_the_name_is_not_inherited() -> None:
    assert fail(write("extends: base.yaml\n")) == (
        "mine.yaml:1:1: name: must be given, like 'name: my_run'",
    )


def test_a_swept_key_of_the_base_is_not_set_in_vain() -> None:
    write("sweep: {power.name: [ci, tci], channel.snr_db: [0, 1]}\n", "swept.yaml")
    lines = fail(write("name: mine\nextends: swept.yaml\nchannel: {snr_db: 5}\n"))
    assert "mine.yaml:3:11: channel.snr_db: is swept by the base; give sweep" in lines[0]
    fixed = "name: mine\nextends: swept.yaml\nchannel: {snr_db: 5}\nsweep: {}\n"
    assert load_scenario(write(fixed)).sweep == {}


def test_an_option_names_no_base() -> None:
    path = write("name: mine\n")
    assert fail(path, "extends=urban_micro") == (
        "--set extends=urban_micro: extends: only a file can name its base; set single keys",
    )
