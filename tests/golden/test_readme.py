"""The README's examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import otafl

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.S | re.M)


def test_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    short = ["training.rounds=2", "training.eval_every=1", "trials=1"]
    scenario = otafl.load_scenario(ROOT / "scenarios" / "quickstart.yaml", short)
    otafl.run(scenario, out=tmp_path / "results" / "quickstart.nc")
    examples = blocks("python")
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, "README.md", "exec"), {})


def test_the_scenario_is_valid(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    path = tmp_path / "readme.yaml"
    path.write_text(text)
    assert otafl.load_scenario(path).algorithm.name == "fedrlr"


def test_there_are_two_commands_for_a_fresh_machine() -> None:
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv")]
    assert len(commands) == 2
    assert commands[0].endswith("otafl run scenarios/quickstart.yaml")
    assert commands[1].endswith("-m pytest")


def test_the_table_of_choices_is_the_registry() -> None:
    from otafl.core import registry

    listed = {
        "algorithm": r"^\| algorithm \| (.*) \|$",
        "server": r"^\| server \| (.*) \|$",
        "csi": r"^\| csi \| (.*) \|$",
        "receiver": r"^\| receiver \| (.*) \|$",
        "power": r"^\| power \| (.*) \|$",
        "transport": r"^\| transport \| (.*) \|$",
        "downlink": r"^\| downlink \| (.*) \|$",
        "codec": r"^\| codec \| (.*) \|$",
        "selection": r"^\| devices.selection \| (.*) \|$",
        "levels": r"^\| devices.levels \| (.*) \|$",
        "compute": r"^\| devices.compute \| (.*) \|$",
        "protocol": r"^\| devices.protocol \| (.*) \|$",
        "availability": r"^\| devices.availability \| (.*) \|$",
        "frequency": r"^\| devices.frequency \| (.*) \|$",
    }
    for table, pattern in listed.items():
        (row,) = re.findall(pattern, README, flags=re.M)
        assert set(re.findall(r"`(\w+)`", row)) == set(registry.names(table))
