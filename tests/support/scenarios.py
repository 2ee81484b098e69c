"""Scenarios for tests of their reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otafl.scenario import Scenario, load_scenario

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "scenarios"
SCENARIO_FILES = sorted([*SCENARIOS.glob("*.yaml"), *(ROOT / "studies").glob("*/*.yaml")])
"""Every scenario that comes with otafl."""

LARGE = {path.stem for path in SCENARIO_FILES if path.stat().st_size > 4500}
"""Scenarios of so many points that they take long to read."""


def mark_large(path: Path) -> Any:
    """Mark the test of a large scenario, or of its result, as slow."""
    return pytest.param(path, id=path.name, marks=pytest.mark.slow if path.stem in LARGE else ())


EVERY_SCENARIO = [mark_large(path) for path in SCENARIO_FILES]


def make_scenario(**keys: Any) -> Scenario:
    return load_scenario({"name": "x", **keys})


def write_scenario(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return path
