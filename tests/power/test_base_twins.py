"""Power policies against the formula sheet of `otafl validate`, one trial and segment at a time."""

from __future__ import annotations

import pytest
from support.power_links import SEGMENTS, TRIALS, make_link, solve
from support.sheet_twins import TWINS

pytestmark = pytest.mark.twin


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("name", TWINS)
def test_equal_to_the_formula_sheet(name: str, linear: bool) -> None:
    policy, twin = TWINS[name]
    link = make_link(0, linear)
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
