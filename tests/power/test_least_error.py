"""Policies of least squared error: numerical minimisation, Sionna, numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize
from support.power_links import (
    N,
    compute_received_gain,
    draw_fading,
    draw_links,
    make_plain_link,
    make_policy,
    perturb,
    solve,
)

from otafl.core.contracts import Link

pytestmark = pytest.mark.exact


def test_open_loop_is_the_3gpp_formula_of_sionna() -> None:
    """One resource block, path losses of 70 to 130 dB, noise of -120 dBm: watts as Sionna's."""
    from otafl.channels.fading import keep_global_state

    with keep_global_state():
        from sionna.sys import open_loop_uplink_power_control

    noise_dbm, p0_dbm, max_dbm = -120.0, -80.0, 23.0
    loss_db = torch.linspace(70, 130, 13).double()[None]
    gain = 10 ** (-loss_db / 10)
    for alpha in (0.0, 0.5, 0.8, 1.0):
        hyper = {"alpha": torch.tensor([alpha]), "p0_db": torch.tensor([p0_dbm - noise_dbm])}
        link = make_plain_link(
            draw_fading(1, 13) * gain.sqrt(),
            10 ** ((max_dbm - noise_dbm) / 10),
            gain=gain,
            hyper={name: value.double() for name, value in hyper.items()},
            symbol_power=torch.full((1, 1, 13), 0.3).double(),
        )
        got = solve(make_policy("open_loop"), link)
        watts = (got.p.abs().square() * link.symbol_power)[0, 0] * 10 ** ((noise_dbm - 30) / 10)
        sionna = open_loop_uplink_power_control(
            1 / gain[0],
            torch.full((13,), 12),
            alpha=alpha,
            p0_dbm=p0_dbm,
            ut_max_power_dbm=max_dbm,
            precision="double",
        )
        torch.testing.assert_close(watts, sionna.to(watts), rtol=1e-6, atol=0)


def objective(c: np.ndarray, s: np.ndarray, m: np.ndarray, beta: float) -> np.ndarray:
    """beta sum d^2 + (sum d)^2 + (1 + beta) N s^2 of c [..., K] and s = 1 / sqrt(eta) [...]."""
    d = np.sqrt(m) * (c - 1)
    return beta * (d**2).sum(-1) + d.sum(-1) ** 2 + (1 + beta) * N * s**2


def parts(link: Link, row: int) -> tuple[np.ndarray, np.ndarray]:
    """sqrt(q) and m of the devices of a draw that send."""
    there = link.transmit_mask[row]
    reach = (link.budget[row] / link.symbol_power[row, 0]).sqrt() * link.h[row, 0].abs()
    return reach[there].numpy(), link.symbol_power[row, 0][there].numpy()


@pytest.mark.parametrize(("devices", "beta"), [(2, 0.05), (5, 5.0), (12, 0.7)])
def test_equals_numerical_minimisation(devices: int, beta: float) -> None:
    """Over s and all c_k <= s sqrt(q_k), jointly, by sequential quadratic programming from full
    power, in 15 draws of unequal budgets and symbol powers; to 1e-6."""
    link = draw_links(15, devices, seed=devices)
    link = perturb(link, hyper={"variation": torch.full((len(link.h),), beta).double()})
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
