"""Scenarios for tests of their reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otafl.scenario import Scenario, load_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def make_scenario(**keys: Any) -> Scenario:
    return load_scenario({"name": "x", **keys})


def write_scenario(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return path
