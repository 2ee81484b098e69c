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
    assert len(examples) == 1
    for example in examples:
        exec(compile(example, "README.md", "exec"), {})


def test_the_scenario_is_valid(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    path = tmp_path / "readme.yaml"
    path.write_text(text)
    assert otafl.load_scenario(path).algorithm.name == "fedrlr_plus"


def test_there_are_two_commands_for_a_fresh_machine() -> None:
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv")]
    assert len(commands) == 2
    assert commands[0].endswith("otafl run scenarios/quickstart.yaml")
    assert commands[1].endswith("-m pytest")
