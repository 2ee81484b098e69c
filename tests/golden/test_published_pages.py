"""The committed page of published claims says what its scripts print of the committed results.

Mutations that make a test here fail: a number of the page changed, a table left out, the worst step
for the best, a plan's bias left out of its cost.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "results" / "published.md").read_text().splitlines()


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
