"""Gradient-statistics-aware power control (Zhang and Tao 2021) against numerical minimisation over
the receive scaling and all gains at once, and its limits.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize
from support.power_links import (
    N,
    compute_received_gain,
    draw_links,
    make_policy,
    perturb,
    solve,
)

from otafl.core.contracts import Link

pytestmark = pytest.mark.exact


def objective(c: np.ndarray, s: np.ndarray, m: np.ndarray, beta: float) -> np.ndarray:
    """beta sum d^2 + (sum d)^2 + (1 + beta) N s^2 of c [..., K] and s = 1 / sqrt(eta) [...]."""
    d = np.sqrt(m) * (c - 1)
    return beta * (d**2).sum(-1) + d.sum(-1) ** 2 + (1 + beta) * N * s**2


def parts(link: Link, row: int) -> tuple[np.ndarray, np.ndarray]:
    """sqrt(q) and m of the devices of a draw that send."""
    there = link.transmit_mask[row]
    reach = (link.budget[row] / link.symbol_power[row, 0]).sqrt() * link.h[row, 0].abs()
    return reach[there].numpy(), link.symbol_power[row, 0][there].numpy()


def of_draws(link: Link, beta: float) -> Link:
    return perturb(link, hyper={"variation": torch.full((len(link.h),), beta).double()})


@pytest.mark.parametrize(("devices", "beta"), [(2, 0.05), (5, 5.0), (12, 0.7)])
def test_equals_numerical_minimisation(devices: int, beta: float) -> None:
    """Over s and all c_k <= s sqrt(q_k), jointly, by sequential quadratic programming from full
    power, in 15 draws of unequal budgets and symbol powers; to 1e-6."""
    link = of_draws(draw_links(15, devices, seed=devices), beta)
    got = solve(make_policy("smcv", variation=beta), link)
    c, s = compute_received_gain(link, got)[:, 0].numpy(), got.eta[:, 0].rsqrt().numpy()
    for row in range(15):
        reach, m = parts(link, row)
        scale = 1 / np.median(reach)  # of s, so that the search is well conditioned
        found = optimize.minimize(
            lambda x, m=m, scale=scale: objective(x[1:], x[0] * scale, m, beta),
            np.r_[1.0, reach * scale],
            method="SLSQP",
            bounds=[(1e-9, None)] * (len(m) + 1),
            constraints={
                "type": "ineq",
                "fun": lambda x, reach=reach, scale=scale: x[0] * scale * reach - x[1:],
            },
            options={"maxiter": 500, "ftol": 1e-13},
        )
        mine = objective(c[row][link.transmit_mask[row].numpy()], s[row], m, beta)
        assert mine == pytest.approx(found.fun, rel=1e-6)


def test_the_uncapped_make_up_for_the_capped() -> None:
    """t = -sum_capped d / (beta + u): two devices, the first capped. beta = 1, m = 1, N = 1/2, q =
    (1, 100): from the two derivatives, s = 3/5 and d = (-2/5, 1/5), so c_2 = 6/5."""
    link = perturb(
        of_draws(draw_links(1, 2, 0), 1.0),
        h=torch.tensor([[[1.0, 10.0]]], dtype=torch.complex128),
        budget=torch.ones(1, 2, dtype=torch.float64),
        symbol_power=torch.ones(1, 1, 2, dtype=torch.float64),
        transmit_mask=torch.ones(1, 2, dtype=torch.bool),
    )
    got = solve(make_policy("smcv", variation=1.0), link)
    # s = [L + A B / (beta + u)] / [2 N + E + A^2 / (beta + u)] = (1 + 1/2) / (1 + 1 + 1/2)
    assert got.eta.rsqrt().item() == pytest.approx(0.6)
    np.testing.assert_allclose(compute_received_gain(link, got)[0, 0].numpy(), [0.6, 1.2])
