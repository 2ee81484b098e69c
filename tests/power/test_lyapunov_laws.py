"""Laws of drift plus penalty. Seeds are fixed; every test's false-alarm level over all that it
compares is 1e-4. Bounds on energy hold with certainty.

Mutations that make a test here fail: the queue not carried over, energies charged without m or |h|
for |p|, e_bar for its root, V in the denominator, the price without V.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from support.energy_runs import DEVICES, F64, POWER, SHARE, SLOTS, N, below, run, symbols

from otafl.power.average_power import inverse_scaling, solve_multipliers

pytestmark = pytest.mark.law

AVERAGE = {"average_db": 10 * math.log10(SHARE)}

WEIGHTS = (0.3, 3.0, 30.0)


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("v", WEIGHTS)
def test_average_energy_is_within_the_drift_bound(v: float, spread: bool) -> None:
    """sum_t e_k / T <= e_bar + (r V / (4 e_bar) + 1) / T for every device and every T."""
    got = run("lyapunov", spread, v=v, **AVERAGE)
    m = symbols(spread)[:, 0]
    ratio = m.amax(-1, keepdim=True) / m.mean(-1, keepdim=True)
    slots = torch.arange(1, SLOTS + 1, dtype=F64)[:, None, None]
    bound = SHARE + (ratio * v / (4 * SHARE) + 1) / slots
    assert (got.energy.cumsum(0) / slots <= bound).all()
    assert got.energy.max() <= 1 + 1e-12


def test_error_falls_as_v_grows() -> None:
    """And the energy rises to its bound."""
    runs = [run("lyapunov", v=v, **AVERAGE) for v in WEIGHTS]
    for less, more in itertools.pairwise(runs):
        assert below(more.error.mean(0), less.error.mean(0), 4)
        assert below(less.energy.mean((0, 2)), more.energy.mean((0, 2)), 4)


def test_it_approaches_the_optimum_that_knows_the_statistics() -> None:
    """`cao_average`'s plan on 4,096 states, met on others: that is the least error there is under
    the average bound alone. At V = 10, once the queues have settled, drift plus penalty is within 5
    % of it with the energy within 5 % of the bound. Standard errors are below 1 %."""
    rng = np.random.default_rng(8)
    quality = torch.from_numpy(rng.exponential(POWER * SHARE, (8192, 1, DEVICES)))
    plan, other = quality[:4096], quality[4096:]
    level = solve_multipliers(plan, torch.tensor([N], dtype=F64)).expand_as(other)
    noise = torch.full((4096, 1), N, dtype=F64)
    s = inverse_scaling(other, level, torch.ones_like(other), noise)
    c = other * s[..., None] / (other * s[..., None] + level)
    least = float(((c - 1).square().sum(-1) + N * s).mean()) / DEVICES
    got = run("lyapunov", v=10.0, **AVERAGE)
    later = slice(SLOTS // 4, None)
    assert float(got.error[later].mean()) == pytest.approx(least, rel=0.05)
    assert float(got.energy[later].mean()) == pytest.approx(SHARE, rel=0.05)
