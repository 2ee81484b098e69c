"""Gains and errors of `gbma` over fading. Seeds are fixed; every test's false-alarm level over all
that it compares is 1e-4.

Mutations that make a test here fail: E|h| and sqrt(E|h|^2) swapped, m left out.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from support.fading_runs import BUDGET, DEVICES, LEVEL, STATES, interval, run
from support.power_links import policy_of

pytestmark = pytest.mark.law


@pytest.mark.parametrize("gain", [1.0, 0.04])
def test_gbma_gains(gain: float) -> None:
    """Amplitude target: E c = 1, Var c = (1 - pi/4) / (pi/4). Energy target: E c = sqrt(pi)/2 and
    E c^2 = 1. Errors of 160,000 draws from the moments of |h|."""
    n = STATES * DEVICES
    for linear in (True, False):
        h, _, got = run(policy_of("gbma"), gain, linear=linear)
        c = (h * got.p).real / got.eta.sqrt()[..., None]
        mean, square = (1.0, 4 / math.pi) if linear else (math.sqrt(math.pi) / 2, 1.0)
        assert abs(c.mean() - mean) < stats.norm.isf(LEVEL / 8) * c.std() / math.sqrt(n)
        assert abs(c.square().mean() - square) < stats.norm.isf(LEVEL / 8) * square / math.sqrt(n)


def test_gbma_error_about_the_mean() -> None:
    """With v = Re(y) / (K sqrt(E)): E v = mu_h mean x, and E|v - E v|^2 = (1 - pi/4)/K^2 sum |x|^2
    + d N / (K^2 E), for 30 fixed symbols of unequal devices; divided here by mu_h^2, the amplitude
    target."""
    rng = np.random.default_rng(3)
    d = 30
    x = torch.from_numpy(rng.standard_normal((DEVICES, d)) + 0.5)
    m = x.square().mean(1)
    h, _, got = run(policy_of("gbma"), m=m)
    noise = torch.from_numpy(rng.standard_normal((STATES, d)) * math.sqrt(0.5))
    root = got.eta.sqrt()
    received = (h * got.p).real[:, 0] @ x + noise
    v = received / (DEVICES * root)
    error = v - x.mean(0)
    for j in range(d):
        assert abs(error[:, j].mean()) < interval(error[:, j], d + 1)
    mu, energy = math.pi / 4, BUDGET / m.max().item()
    law = ((1 - mu) * x.square().sum() + d * 0.5 / energy) / DEVICES**2 / mu
    squared = error.square().sum(1)
    assert abs(squared.mean() - law.item()) < interval(squared, d + 1)


def test_gbma_energy_target_makes_a_product_of_two_sums_unbiased() -> None:
    """E[c_k c_k] = 1 with a common fade: the mean of sum c_k u_k sum c_j v_j, over signs that
    leave the diagonal, is sum u_k v_k."""
    h, _, got = run(policy_of("gbma"), linear=False)
    c = ((h * got.p).real / got.eta.sqrt()[..., None])[:, 0]
    sign = torch.from_numpy(np.random.default_rng(4).choice([-1.0, 1.0], (STATES, DEVICES)))
    u, v = torch.linspace(0.5, 2, DEVICES).double(), torch.linspace(3, 1, DEVICES).double()
    product = (c * sign * u).sum(1) * (c * sign * v).sum(1)
    assert abs(product.mean() - (u * v).sum()) < interval(product)
