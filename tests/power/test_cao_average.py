"""Average power budgets: the plan of multipliers, and the policy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import optimize
from support.power_links import (
    N,
    make_link,
    make_policy,
    make_rayleigh_statistics,
    perturb,
)

from otafl.core.errors import UserError
from otafl.power.cao_average import inverse_scaling, solve_multipliers
from otafl.scenario import load_scenario

pytestmark = pytest.mark.exact


def lagrangian(log_eta: float, amplitude: np.ndarray, *args: np.ndarray) -> float:
    m, g, lam = args
    root = math.exp(log_eta / 2)
    c = np.sqrt(g) * amplitude / root
    return float((m * (c - 1) ** 2).sum() + N / root**2 + (lam * m * amplitude**2).sum())


@pytest.mark.parametrize("seed", range(2))
def test_a_state_minimises_the_lagrangian_with_unequal_symbol_powers(seed: int) -> None:
    """Over eta and all amplitudes, by a quasi-Newton method from another start: the equations of
    the paper with m_k as weights."""
    rng = np.random.default_rng(seed)
    m, g = 10 ** rng.uniform(-1, 1, 4), rng.exponential(size=4) + 0.05
    lam = 10 ** rng.uniform(-2, -0.5, 4)
    tensors = (torch.from_numpy(x)[None] for x in (g, lam, m))
    s = inverse_scaling(*tensors, torch.tensor([N], dtype=torch.float64)).item()
    eta = 1 / s
    assert (m * lam * g * eta**2 / (g + eta * lam) ** 2).sum() == pytest.approx(N)
    amplitude = math.sqrt(eta) * np.sqrt(g) / (g + eta * lam)
    here = lagrangian(math.log(eta), amplitude, m, g, lam)
    found = optimize.minimize(
        lambda x: lagrangian(x[0], x[1:], m, g, lam), np.r_[0.0, np.full(4, 0.5)], tol=1e-12
    )
    assert here <= found.fun * (1 + 1e-12)
    assert here == pytest.approx(found.fun, rel=1e-6)
    np.testing.assert_allclose(found.x[1:], amplitude, rtol=1e-3)


def test_one_device_has_a_closed_form() -> None:
    """K = 1: |p|^2 = sqrt(N / (lambda g)) - N / g above g = lambda N, else silent (the paper's
    channel-inversion water-filling without a second device)."""
    rng = np.random.default_rng(7)
    g = torch.from_numpy(rng.exponential(size=(2000, 1, 1)))
    noise = torch.tensor([N], dtype=torch.float64)
    lam = solve_multipliers(g, noise)

    def power(level: float) -> np.ndarray:
        gain = g[:, 0, 0].numpy()
        return np.maximum(np.sqrt(N / (level * gain)) - N / gain, 0.0)

    root = optimize.brentq(lambda level: power(level).mean() - 1, 1e-6, 1e3, xtol=1e-14)
    assert lam.item() == pytest.approx(root, rel=1e-8)
    s = inverse_scaling(g[:, 0], lam.expand(2000, 1), torch.ones(2000, 1), noise)
    np.testing.assert_allclose(
        (g[:, 0, 0] * s / (g[:, 0, 0] * s + lam[0, 0]) ** 2).numpy(), power(root), atol=1e-6
    )


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
    transport = {"name": "over_the_air", "snr_convention": "total_energy"}
    with pytest.raises(UserError, match=r"'cao_average', which plans .* use per_symbol"):
        load_scenario({"name": "x", "power": "cao_average", "transport": transport})
