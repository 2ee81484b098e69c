"""Adam on the gradient of a penalty, against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.rounding import assert_agree
from twins import tdpfed as twin

from otafl.algorithms.low_rank import adam as adam_steps
from otafl.algorithms.low_rank.adam import PenaltyAdam
from otafl.factorised import cp

pytestmark = pytest.mark.exact


def test_adam_by_its_definition() -> None:
    """Also where gradients are as small as epsilon: each row by its own rate and lambda, which
    divides out but for epsilon."""
    rate = torch.tensor([1e-3, 5e-2], dtype=torch.float64)
    penalty = torch.tensor([12.0, 1.0], dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    ours = start.flatten(1).clone()
    adam = PenaltyAdam(ours, rate, penalty)
    expected = [row.numpy() for row in start]
    theirs = [twin.Adam(float(r)) for r in rate]
    for step in range(5):
        g = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
        g[:, 0] *= 1e-9
        g[:, 1] = 0.0 if step < 2 else g[:, 1]
        adam.step_(g.flatten(1))
        for row, other in enumerate(theirs):
            expected[row] = other.step(expected[row], float(penalty[row]) * g[row].numpy())
        np.testing.assert_allclose(ours.view(2, 3, 4), np.stack(expected), rtol=0, atol=1e-12)


def test_lambda_acts_on_the_factors_through_theta_alone() -> None:
    """Fact F12: s' Adam steps at a fixed theta, lambda 12 and 1."""
    generator = torch.Generator().manual_seed(4)
    target = torch.randn(1, 20, 10, generator=generator, dtype=torch.float64)
    found = []
    for penalty in (12.0, 1.0):
        one = torch.ones(1, 3 * (20 + 10), dtype=torch.float64)
        one[:, 60:] = 0.5
        first, second = one.split([60, 30], 1)
        adam = PenaltyAdam(one, *torch.tensor([[8e-4], [penalty]], dtype=torch.float64))
        for _ in range(60):
            by = cp.compute_factor_gradients(target, [first.view(1, 3, 20), second.view(1, 3, 10)])
            adam.step_(torch.cat([g.flatten(1) for g in by], 1))
        found.append(one)
    assert 0 < float((found[0] - found[1]).norm() / found[1].norm()) < 6e-7


def test_corrections_agree_with_those_of_each_step() -> None:
    """70 steps, more than are corrected at once."""
    rate, penalty = torch.tensor([8e-4, 1e-2]), torch.tensor([12.0, 3.0])
    optimiser = PenaltyAdam(torch.ones(2, 5), rate, penalty)
    for count in range(1, 71):
        optimiser.advance()
        first, second = (1.0 - beta**count for beta in adam_steps.BETAS)
        assert_agree(optimiser._scale, first / (rate[:, None] * second**0.5))
        offset = first * (adam_steps.EPSILON / penalty[:, None]) / rate[:, None]
        assert_agree(optimiser._offset, offset)
