"""Laws of pacing. Seeds are fixed; every test's false-alarm level over all that it compares is
1e-4. Bounds on energy hold with certainty.

Mutations that make a test here fail: the energy left not carried over, energies charged without m
or |h| for |p|, an allowance not divided by the slots ahead, the best level for the first.
"""

from __future__ import annotations

import math

import pytest
from support.energy_runs import SHARE, SLOTS, below, run

pytestmark = pytest.mark.law

PACED = {"energy_db": 10 * math.log10(SHARE), "rounds": SLOTS}


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("burst", [1, 2, 5])
def test_pacing_never_overspends(burst: int, spread: bool) -> None:
    """The life budget and the peak of every slot; and with a burst of two nearly all is used."""
    got = run("budget_paced", spread, burst=burst, **PACED)
    spent = got.energy.sum(0) / (SLOTS * SHARE)
    assert spent.max() <= 1 + 1e-12
    assert got.energy.max() <= 1 + 1e-12
    if burst == 2 and not spread:
        assert spent.mean() > 0.8


@pytest.mark.parametrize("spread", [False, True])
def test_pacing_beats_spending_at_once(spread: bool) -> None:
    """The same energy in all: below full power until the battery is empty, below channel inversion
    so, and below its own unpaced self; and no quarter of the run is twice as bad as another."""
    paced = run("budget_paced", spread, burst=2, **PACED)
    rivals = {
        "full": run("full", spread, life=True),
        "ci": run("ci", spread, life=True),
        "greedy": run("budget_paced", spread, burst=2, spend="greedy", **PACED),
    }
    for name, other in rivals.items():
        assert other.energy.sum(0).max() <= SLOTS * SHARE * (1 + 1e-9)
        assert below(paced.error.mean(0), other.error.mean(0), len(rivals)), name
    assert rivals["full"].error.mean() > 4 * paced.error.mean()
    quarters = paced.error.view(4, -1).mean(1)
    assert quarters.max() < 2 * quarters.min()
