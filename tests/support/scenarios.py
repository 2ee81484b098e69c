"""Scenarios for tests of their reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otafl.scenario import Scenario, load_scenario

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "scenarios"
SCENARIO_FILES = sorted([*SCENARIOS.glob("*.yaml"), *(ROOT / "studies").glob("*/*.yaml")])
"""Every scenario that comes with otafl."""

LARGE = {path.stem for path in SCENARIO_FILES if path.stat().st_size > 4500}
"""Scenarios of so many points that they take long to read."""


def make_scenario(**keys: Any) -> Scenario:
    return load_scenario({"name": "x", **keys})


def write_scenario(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return path
