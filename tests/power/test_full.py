"""Full power, and the receive scaling of least error."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import optimize
from support.power_links import (
    SEGMENTS,
    TRIALS,
    N,
    compute_mse,
    make_link,
    make_policy,
    perturb,
    solve,
)

from otafl.core.contracts import Link

pytestmark = pytest.mark.exact


def test_full_minimises_the_mean_squared_error() -> None:
    link = make_link(0)
    got = solve(make_policy("full"), link)
    arrives = (link.h * got.p).real.numpy()
    for s in range(TRIALS):
        for q in range(SEGMENTS):
            args = (arrives[s, q], link.symbol_power[s, q].numpy() * link.transmit_mask[s].numpy())
            found = optimize.minimize_scalar(
                lambda log_root, args=args: compute_mse(math.exp(log_root), *args),
                bounds=(-10, 10),
                method="bounded",
                options={"xatol": 1e-10},
            )
            root = got.eta[s, q].sqrt().item()
            assert root == pytest.approx(math.exp(found.x), rel=1e-6)
            assert compute_mse(root, *args) <= found.fun * (1 + 1e-12)


def one_device(**fields: object) -> Link:
    """h = 1, P = 2, m = 1."""
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    link = Link(
        h=one.to(torch.complex128),
        gain=one[0],
        budget=2 * one[0],
        symbol_power=one,
        noise_variance=N * one[0, 0],
        transmit_mask=one[0].bool(),
        is_linear=True,
        hyper={},
    )
    return perturb(link, **fields)


@pytest.mark.parametrize("name", ["full", "cao_static"])
def test_one_device_by_hand(name: str) -> None:
    """Unit power, h = 1, P = 2: sqrt(eta) = (1/2 + 2) / sqrt(2), c = 4/5, and the error (1/5)^2 +
    1/2 / (25/8) = 1/5."""
    got = solve(make_policy(name), one_device())
    assert got.eta.item() == pytest.approx(25 / 8)
    assert (got.p.real / got.eta.sqrt()).item() == pytest.approx(0.8)
    assert compute_mse(
        got.eta.sqrt().item(), got.p.real.numpy(), torch.ones(1).numpy()
    ) == pytest.approx(0.2)
