"""Average power: budgets on the states planned for, and what a plan depends on."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.power_links import (
    N,
    make_link,
    make_policy,
    make_rayleigh_statistics,
    perturb,
    solve,
)

from otafl.core.contracts import ChannelStatistics
from otafl.core.problems import Problem

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("snr", [1.0, 100.0])
def test_the_budget_is_met_on_the_states_planned_for(snr: float) -> None:
    """With equality, or the multiplier is zero and the budget is not needed, but for the power of
    states so rare that it is held; all three occur."""
    policy, draws = make_policy("cao_average", draws=500), 500
    assert policy.power_constraint == "average"
    link = make_link(1, spread=False)
    budget = snr * torch.tensor([1.0, 0.3, 1.0, 1.0, 3.0, 1e4], dtype=torch.float64)
    link = perturb(
        link, budget=budget.expand(3, 6), transmit_mask=torch.ones_like(link.transmit_mask)
    )
    statistics = make_rayleigh_statistics(link)
    h = statistics.draw_samples(draws).transpose(0, 1)  # as segments
    state = policy.prepare(statistics, link.hyper)
    got = policy.compute_coefficients(
        state, perturb(link, h=h, symbol_power=torch.ones_like(h.real))
    )[1]
    used = got.p.abs().square() / link.budget[:, None]
    mean, held = used.mean(1), used.amax(1) >= draws / 16 * (1 - 1e-9)
    assert (used <= draws / 16 * (1 + 1e-9)).all()
    assert (mean <= 1 + 1e-8).all()
    free = (state[0] > 0) & ~held
    assert free.any()
    np.testing.assert_allclose(mean[free].numpy(), 1.0, rtol=1e-8)
    if snr == 1.0:
        assert (state[0][:, 5] == 0).all()
    assert held.any() == (snr != 1.0)


def test_without_fading_it_is_the_static_policy() -> None:
    """One state only: an average is a peak. Devices that need not their budget have no
    multiplier."""
    link = make_link(0, spread=False)
    link = perturb(link, transmit_mask=torch.ones_like(link.transmit_mask))
    still = ChannelStatistics(
        **{
            **vars(make_rayleigh_statistics(link)),
            "draw_samples": lambda n: link.h[:, 0].expand(n, -1, -1),
        }
    )
    policy = make_policy("cao_average", draws=64)
    state = policy.prepare(still, link.hyper)
    got, expected = (
        policy.compute_coefficients(state, link)[1],
        solve(make_policy("cao_static"), link),
    )
    torch.testing.assert_close(got.p, expected.p, rtol=1e-5, atol=0)
    torch.testing.assert_close(got.eta, expected.eta, rtol=1e-5, atol=0)
    assert (state[0] == 0).any()


def test_unequal_symbol_powers_share_one_scale() -> None:
    """Transmit scalars are those of the common power; the receive scaling is the best for the
    actual ones. A device of the largest m is at its budget, all others below."""
    link = make_link(3)
    policy = make_policy("cao_average", draws=64)
    state = policy.prepare(make_rayleigh_statistics(link), link.hyper)
    there = link.symbol_power * link.transmit_mask[:, None]
    common = there.amax(-1, keepdim=True)
    equal = policy.compute_coefficients(
        state, perturb(link, symbol_power=common.expand_as(link.symbol_power))
    )[1]
    got = policy.compute_coefficients(state, link)[1]
    torch.testing.assert_close(got.p, equal.p)
    arrives = (link.h * got.p).real
    root = (N + (there * arrives.square()).sum(-1)) / (there * arrives).sum(-1)
    torch.testing.assert_close(got.eta, root.square())


def test_it_plans_for_a_budget_on_the_power() -> None:
    text = (
        "transport.snr_convention: 'total_energy' does not go with power: 'cao_average', which "
        "plans for a power budget; use per_symbol"
    )
    path = ("transport", "snr_convention")
    for given, problems in (
        ({"snr_convention": "total_energy"}, [Problem(text, path, (("power",),))]),
        ({"snr_convention": "per_symbol"}, []),
        ({}, []),  # a transport that does not know of it
    ):
        scenario = SimpleNamespace(transport=SimpleNamespace(**given))
        assert list(make_policy("cao_average").check(scenario)) == problems
