"""A search of settings in batches: docs/tuning.md and its script, with the real package."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.test_docs import run_blocks
from support.pages import DOCS

pytestmark = pytest.mark.slow

optuna = pytest.importorskip("optuna")

SCRIPT = Path(__file__).parents[2] / "scripts" / "search_settings.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return runpy.run_path(str(SCRIPT))


def small(script: dict[str, Any]) -> dict[str, Any]:
    training = {"rounds": 4, "local_steps": 2, "eval_every": 4}
    return {**script["BASE"], "training": training, "devices": {"count": 3}}


def test_a_search_tells_each_setting_its_own_value(script: dict[str, Any]) -> None:
    """What a setting has alone, up to rounding."""
    study = script["search"](small(script), script["SPACE"], budget=5, batch=3)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 5
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 5
    alone = [script["evaluate_batch"](small(script), [trial.params])[0] for trial in study.trials]
    np.testing.assert_allclose([trial.value for trial in study.trials], alone, atol=0.01)
    assert len(set(alone)) > 2


def test_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run_blocks(DOCS / "tuning.md", monkeypatch, tmp_path)
    assert len(names["study"].trials) == 24
    assert names["study"].best_value > 0.7
    assert "power.threshold" in capsys.readouterr().out
