"""Power policies against the formula sheet of `otafl validate`, one trial and segment at a time.

Mutations that make a test here fail: min and max swapped (ci's eta; the common scale of gbma, tci
and cotaf), the root of eta for eta, sigma^2 for sigma^2 / 2, the conjugate of h missing, m left
out of the bound, of `full`'s numerator or of its denominator, the bound for its root, the
thresholds of tci and cotaf with |h| and |h|^2 swapped, silent devices in ci's minimum or at full
power, a mean over all for one over the senders, tci's peak without the threshold, cao's index off
by one, smcv's free devices not answering the capped ones, blind without A, without beta or with the
sum over all, alpha's sign, no clamp at the budget, `genie_reference`'s symbol power missing.
"""

from __future__ import annotations

import pytest
from support.power_links import SEGMENTS, TRIALS, make_link, solve
from support.sheet_twins import TWINS

pytestmark = pytest.mark.twin


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("name", TWINS)
def test_equal_to_the_formula_sheet(name: str, linear: bool, seed: int) -> None:
    policy, twin = TWINS[name]
    link = make_link(seed, linear)
    got = solve(policy, link)
    for s in range(TRIALS):
        for q in range(SEGMENTS):
            row = (
                link.h[s, q],
                link.gain[s],
                link.budget[s],
                link.symbol_power[s, q],
                link.transmit_mask[s],
            )
            p, eta, active = twin(*(value.numpy() for value in row), linear)
            assert got.p[s, q].numpy() == pytest.approx(p, rel=1e-9, abs=1e-12)
            assert got.eta[s, q].item() == pytest.approx(eta, rel=1e-9)
            assert (got.active_mask[s, q].numpy() == active).all()
