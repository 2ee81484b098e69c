"""The optimum of Cao, Zhu, Xu and Huang 2020 for one fading state: against numerical minimisation,
which knows nothing of thresholds or closed forms.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.power_links import (
    DRAWS,
    N,
    compute_capped_errors,
    compute_received_gain,
    draw_links,
    make_policy,
    perturb,
    solve,
)

from otafl.core.contracts import Link

pytestmark = pytest.mark.exact


def numerical_optimum(link: Link) -> tuple[np.ndarray, np.ndarray]:
    """sqrt(eta) and the error: a grid of 200 points over 8 decades, then golden sections between
    the neighbours of its best, for all draws at once."""
    grid = np.geomspace(1e-4, 1e4, 200)
    draws = len(link.h)
    errors = np.stack([compute_capped_errors(np.full(draws, root), link) for root in grid])
    best = errors.argmin(0).clip(1, len(grid) - 2)
    low, high = np.log(grid[best - 1]), np.log(grid[best + 1])
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        worse = compute_capped_errors(np.exp(left), link) > compute_capped_errors(
            np.exp(right), link
        )
        low, high = np.where(worse, left, low), np.where(worse, high, right)
    root = np.exp((low + high) / 2)
    return root, compute_capped_errors(root, link)


@pytest.mark.parametrize("devices", [2, 20])
def test_static_equals_numerical_optimisation(devices: int) -> None:
    """500 draws each, unequal budgets and symbol powers, to 1e-6."""
    link = draw_links(DRAWS // 2, devices, seed=devices)
    got = solve(make_policy("cao_static"), link)
    root, least = numerical_optimum(link)
    m = (link.symbol_power[:, 0] * link.transmit_mask).numpy()
    c = compute_received_gain(link, got)[:, 0].numpy()
    error = (m * (c - 1) ** 2).sum(-1) + N / got.eta[:, 0].numpy()
    np.testing.assert_allclose(error, least, rtol=1e-6)
    assert (error <= least * (1 + 1e-12)).all()
    np.testing.assert_allclose(got.eta[:, 0].sqrt().numpy(), root, rtol=1e-6)
    used = got.p.abs().square() * link.symbol_power / link.budget[:, None]
    assert (used <= 1 + 1e-12).all()
    full = (used > 1 - 1e-9).sum(-1)  # every number of devices at full power occurs
    assert len(full.unique()) > min(devices, 10) - 1


def test_static_by_hand() -> None:
    """q = (1, 9), m = 1, N = 1/2: sqrt(eta) = min(1.5 / 1, 10.5 / 4) = 1.5, so the first sends at
    full power, c = 2/3, the second inverts, and the error is 1/9 + (1/2) / (9/4) = 1/3."""
    link = perturb(
        draw_links(1, 2, 0),
        h=torch.tensor([[[1j, 3.0]]], dtype=torch.complex128),
        budget=torch.ones(1, 2, dtype=torch.float64),
        symbol_power=torch.ones(1, 1, 2, dtype=torch.float64),
        transmit_mask=torch.ones(1, 2, dtype=torch.bool),
    )
    got = solve(make_policy("cao_static"), link)
    assert got.eta.item() == pytest.approx(2.25)
    np.testing.assert_allclose(got.p[0, 0].numpy(), [-1j, 0.5])
    c = compute_received_gain(link, got)
    assert ((c - 1).square().sum() + N / got.eta).item() == pytest.approx(1 / 3)
