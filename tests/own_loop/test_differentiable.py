"""The closed forms of `otafl.own_loop.differentiable`, by hand and at a known optimum."""

from __future__ import annotations

import math

import pytest
import torch
from support.gradients import K, draw, draw_complex

from otafl.core.contracts import Link
from otafl.own_loop.differentiable import (
    aggregation_mse,
    apply_combiner,
    effective_gains,
    scale_to_budget,
    superpose,
)
from otafl.power.base import cophase
from otafl.power.least_error import CaoStatic

pytestmark = pytest.mark.exact


def test_numbers_by_hand() -> None:
    """h p = (2j)(-1j) = 2 and (1+1j)(1) with real part 1; eta = 4: c = 1, 1/2. Symbols 3 and -1:
    (3 - 1/2 + z sqrt(1/8)) / 2. Error (1/4) [2 * 0 + 8 * 1/4 + 1/8]; a common part of 3 adds 3 (1/4
    - 1/4) = 0, and with c = 3/2, 1/2 it would be 3 (0 - 1/2)."""
    h, p = torch.tensor([2j, 1 + 1j]), torch.tensor([-1j, 1 + 0j])
    eta, m = torch.tensor(4.0), torch.tensor([2.0, 8.0])
    torch.testing.assert_close(effective_gains(h, p, eta), torch.tensor([1.0, 0.5]))
    x, z = torch.tensor([[3.0], [-1.0]]), torch.tensor([2.0])
    torch.testing.assert_close(superpose(x, h, p, eta), torch.tensor([1.25]))
    expected = torch.tensor([(2.5 + 2.0 * math.sqrt(0.125)) / 2.0])
    torch.testing.assert_close(superpose(x, h, p, eta, z), expected)
    expected = torch.tensor([(2.5 + 2.0 * math.sqrt(0.75)) / 2.0])
    torch.testing.assert_close(superpose(x, h, p, eta, z, variance=3.0), expected)
    assert aggregation_mse(h, p, eta, m).item() == pytest.approx((8 / 4 + 1 / 8) / 4)
    assert aggregation_mse(h, p, eta, m, variance=2.0).item() == pytest.approx((2 + 0.5) / 4)
    both = torch.tensor([-1.5j, 1 + 0j])
    common = aggregation_mse(h, both, eta, m, torch.tensor(3.0))
    assert common.item() == pytest.approx((2 / 4 + 8 / 4 - 3 / 2 + 1 / 8) / 4)
    f = torch.tensor([0.6, 0.8j])
    torch.testing.assert_close(
        apply_combiner(f, torch.tensor([[1.0, 1j]])), torch.tensor([1.4 + 0j])
    )
    held = scale_to_budget(torch.tensor([0.0, 40.0]), torch.tensor([8.0, 9.0]), torch.tensor(2.0))
    torch.testing.assert_close(held, torch.tensor([1.0, math.sqrt(4.5)]))


def test_the_closed_form_is_the_mean_squared_error_of_what_superposes() -> None:
    """Exactly: symbols with the stated second moments E x_j x_k over equally likely columns, noise
    of variance one that is orthogonal to them."""
    d = 16
    basis = math.sqrt(d) * torch.linalg.qr(draw(d, K + 2))[0].T  # orthogonal rows of power one
    spread = torch.tensor([0.4, 1.0, 2.0, 0.1, 0.7, 3.0], dtype=torch.float64)
    x = spread[:, None].sqrt() * basis[:K] + math.sqrt(0.3) * basis[K]
    h, p = draw_complex(4, K), draw_complex(4, K, seed=1)
    eta = torch.tensor([0.5, 1.0, 2.0, 9.0], dtype=torch.float64)
    estimate = superpose(x, h, p, eta, basis[K + 1])
    got = (estimate - x.mean(0)).square().mean(-1)
    common = torch.tensor(0.3, dtype=torch.float64)
    expected = aggregation_mse(h, p, eta, spread + common, common)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)


def test_the_optimum_is_stationary() -> None:
    """At the scalars of `cao_static` (Cao et al. 2020): no slope in eta nor in the amplitudes of
    devices that invert, and those at full power would want more."""
    trials = 50
    budget = 10.0 * torch.exp(draw(trials, K))
    link = Link(
        h=draw_complex(trials, 1, K),
        gain=torch.ones(trials, K),
        budget=budget,
        symbol_power=torch.exp(draw(trials, 1, K, seed=5)),
        noise_variance=torch.full((trials,), 0.5, dtype=torch.float64),
        transmit_mask=torch.ones(trials, K, dtype=torch.bool),
        is_linear=True,
        hyper={},
    )
    _, best = CaoStatic().compute_coefficients(None, link)
    amplitude = best.p.abs().requires_grad_()
    eta = best.eta.clone().requires_grad_()
    error = aggregation_mse(link.h, cophase(amplitude, link.h), eta, link.symbol_power)
    by_amplitude, by_eta = torch.autograd.grad(error.sum(), [amplitude, eta])
    scale = error.detach()
    assert (by_eta * best.eta / scale).abs().max() < 1e-10
    slope = by_amplitude * best.p.abs() / scale[..., None]
    full = best.p.abs() > (budget[:, None] / link.symbol_power).sqrt() * (1 - 1e-9)
    assert slope[~full].abs().max() < 1e-10
    assert (slope[full] < 1e-10).all()
    assert (slope[full] < -1e-3).sum() > 50 < (~full).sum()
