"""The committed page of published claims says what its scripts print of the committed results.

Mutations that make a test here fail: a number of the page changed, a table left out, the worst step
for the best, a plan's bias left out of its cost.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "results" / "published.md").read_text().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "figures", "least"),
    [
        ("published_no_phase", ("majority_votes", "reed"), 2 + 8 + 6),
        ("published_power", ("privacy_for_free", "pre_scalers"), 3 + 24 + 6 + 3),
    ],
)
def test_tables(script: str, figures: tuple[str, ...], least: int, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / f"{script}.py")]
    command += [str(ROOT / "results" / "reference"), "--figures", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "MPLBACKEND": "agg"}
    )
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == least
    assert [row for row in rows if row not in PAGE] == []
    for name in figures:
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_plans_trade_bias_for_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alike devices: no bias; the more they differ, the more zero bias costs, and the pre-scaler
    never costs more than it."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    plans = runpy.run_path(str(ROOT / "scripts" / "published_power.py"))["compute_plans"]
    told = [plans(spread) for spread in (0, 10, 20, 40)]
    assert told[0][0] == pytest.approx(0, abs=1e-9)
    for bias, variance, none, unbiased in told:
        assert none == pytest.approx(0, abs=1e-9)
        assert bias + variance <= unbiased * (1 + 1e-9)
    assert [one[0] for one in told] == sorted(one[0] for one in told)
    assert [one[3] for one in told] == sorted(one[3] for one in told)
