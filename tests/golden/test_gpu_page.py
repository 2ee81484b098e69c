"""The page of stacks on a GPU, tried on the CPU; and what says that there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.programs import run

ROOT = Path(__file__).parents[2]


def page(*options: str) -> subprocess.CompletedProcess[str]:
    return run(ROOT / "benchmarks" / "gpu.py", *options, timeout=600)


@pytest.mark.slow
def test_every_case_has_a_row_a_stack() -> None:
    done = page("--device", "cpu", "--stacks", "1", "2", "--rounds", "1", "--side", "64", "--small")
    assert done.returncode == 0, done.stderr
    tables = done.stdout.split("\n## ")[1:]
    assert len(tables) == 6
    for table in tables:
        rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line[:1] == "|"]
        assert [row[0] for row in rows[2:]] == ["1", "2"]
        for row in rows[2:]:
            assert float(row[1].replace(",", "")) > 0
            assert float(row[5].removesuffix(" %")) > 0
            assert float(row[7].removesuffix(" GB")) > 0


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU")
def test_no_gpu_is_said_in_a_sentence() -> None:
    done = page()
    assert done.returncode == 2
    assert done.stderr == "torch sees no GPU; use --device cpu, or a machine with one\n"
    made = subprocess.run(
        ["make", "-s", "gpu", f"PYTHON={sys.executable}"], cwd=ROOT, capture_output=True, text=True
    )
    assert made.returncode != 0
    assert made.stderr.startswith("make gpu: torch sees no GPU; ")
