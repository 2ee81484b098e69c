"""The committed page of published claims says what its scripts print of the committed results."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies.published.published_power import compute_plans

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "studies" / "published" / "README.md").read_text().splitlines()


def test_plans_trade_bias_for_variance() -> None:
    """Alike devices: no bias; the more they differ, the more zero bias costs, and the pre-scaler
    never costs more than it."""
    told = [compute_plans(spread) for spread in (0, 10, 20, 40)]
    assert told[0][0] == pytest.approx(0, abs=1e-9)
    for bias, variance, none, unbiased in told:
        assert none == pytest.approx(0, abs=1e-9)
        assert bias + variance <= unbiased * (1 + 1e-9)
    assert [one[0] for one in told] == sorted(one[0] for one in told)
    assert [one[3] for one in told] == sorted(one[3] for one in told)
