"""The programs in examples/ run, each in its own process, and are short."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from support.programs import run

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "first_run": "at the end: 0.8",
    "own_policy": "keep_strong(share=0.2)",
    "own_loop": "test accuracy 0.8",
    "paired_test": "-30 dB  ci                    -0.",
    "trace": "gbma",
    "personalised": "apfl",
    "adapters": "freeze_a         586",
    "dask_cluster": "[32]",
    "optuna_search": "best validation accuracy 0.",
    "report": " MB in ",
    "presets": "wide_area_iot  accuracy 0.",
}
"""Program -> a part of what it prints."""
NEEDS = {"optuna_search": "optuna", "dask_cluster": "distributed"}


def test_each_program_has_a_test() -> None:
    assert {file.stem for file in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_program_runs(name: str, tmp_path: Path) -> None:
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"needs {NEEDS[name]}")
    done = run(
        ROOT / "examples" / f"{name}.py",
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        timeout=None,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert EXAMPLES[name] in done.stdout, done.stdout
