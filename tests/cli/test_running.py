"""What `otafl run` has imported by its first round.

Fails if a flat channel is drawn by Sionna's classes, the memory of a model is estimated without
numbers (PyTorch then imports its compiler), or the digits are asked of scikit-learn.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.exact

HEAVY = ("sionna", "torch._dynamo", "matplotlib", "sklearn")

BEGIN = f"""
import os, sys
from otafl.cli import main
from otafl.engine.engine import Engine

def stop(*_):
    print(*(name for name in {HEAVY} if name in sys.modules), flush=True)
    os._exit(0)

Engine.run_round = stop
main()
"""
"""A command line that ends at the first round, and says what of it is there."""


def imported(tmp_path: Path, keys: dict[str, Any], command: str = "run") -> list[str]:
    """What of `HEAVY` a command has imported by its first round."""
    (tmp_path / "x.yaml").write_text(json.dumps({"name": "x", "data": "digits", **keys}))
    line = [sys.executable, "-c", BEGIN, command, "x.yaml"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"transport": "ideal"}, id="ideal"),
        pytest.param({"channel": "awgn"}, id="awgn"),
        pytest.param({"channel": {"name": "rayleigh", "antennas": 2}, "trials": 3}, id="rayleigh"),
        pytest.param(
            {"channel": {"name": "rician", "speed_kmh": 3.0, "ris": {"elements": 4}}},
            id="rician, moving, surface",
        ),
        pytest.param({"transport": "digital"}, id="digital"),
    ],
)
def test_a_run_begins_without_what_it_does_not_need(tmp_path: Path, keys: dict[str, Any]) -> None:
    assert imported(tmp_path, keys) == []


@pytest.mark.slow
def test_a_rehearsal_imports_no_more(tmp_path: Path) -> None:
    assert imported(tmp_path, {"channel": "rayleigh"}, "check") == []


@pytest.mark.slow
def test_a_channel_of_sionnas_tables_imports_sionna(tmp_path: Path) -> None:
    assert "sionna" in imported(tmp_path, {"channel": "tdl-a"})
