"""What a round would move to a GPU and back: `tests/gpu`, in a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "gpu"


@pytest.mark.slow(seconds=45)
def test_on_a_pretended_gpu() -> None:
    options = ["-m", "not gpu", "-n", "0", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(FOLDER)],
        capture_output=True,
        text=True,
        env=os.environ | {"OTAFL_GPU_TESTS": "pretended"},
    )
    assert done.returncode == 0, done.stdout[-4000:]
