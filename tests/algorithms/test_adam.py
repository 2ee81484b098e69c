"""Adam on the gradient of a penalty, against its definition."""

from __future__ import annotations

import functools
import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from support.rounding import assert_agree
from twins import tdpfed as twin

from otafl.algorithms import adam as adam_steps
from otafl.algorithms.adam import PenaltyAdam
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_agree_with_and_without_a_compiler(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three rows of 1,003 numbers in two blocks, and a gradient that is 0."""
    found = []
    for spent_s in (-math.inf, math.inf):
        monkeypatch.setattr(adam_steps._kernel, "spent_s", spent_s)
        generator = torch.Generator().manual_seed(5)
        draw = functools.partial(torch.randn, generator=generator, dtype=dtype)
        rows, rates = draw(3, 1003), torch.tensor([1e-3, 1e-2, 5e-2], dtype=dtype)
        optimiser = PenaltyAdam(rows, rates, 100 * rates)
        for _ in range(4):
            first, second = draw(3, 1000), draw(3, 3)
            first[:, 7] = 0.0
            optimiser.step_(first, second)
        found.append(rows)
    assert_agree(*found)


def test_compiled_steps_are_those_of_tensor_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a processor on which they round otherwise, and are not taken."""
    monkeypatch.setattr(adam_steps._kernel, "spent_s", math.inf)
    rates = torch.tensor([1e-3, 5e-2], dtype=torch.float64)
    kernel = adam_steps._kernel.get(rates.device)
    if kernel is None:
        pytest.skip("no compiler")
    plain, compiled = (torch.ones(2, 3, dtype=torch.float64) for _ in range(2))
    gradient = torch.tensor([[1e-9, 0.3, -2.0], [1e-8, 0.0, 5.0]], dtype=torch.float64)
    PenaltyAdam(plain, rates, 100 * rates).step_plain_(gradient)
    PenaltyAdam(compiled, rates, 100 * rates).step_compiled_(kernel, gradient)
    assert_agree(compiled, plain)


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


def test_tensor_operations_remain_where_the_compiler_errs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel: Any = ModuleType("kernel")
    kernel.move_moments = lambda *arguments: None
    kernel.move_rows = lambda rows, *others: rows.fill(0.0)
    monkeypatch.setattr(adam_steps._kernel, "get", lambda device: kernel)
    rows = torch.ones(1, 3, dtype=torch.float64)
    rate = torch.tensor([0.1], dtype=torch.float64)
    PenaltyAdam(rows, rate, 10 * rate).step_(torch.ones(1, 3, dtype=torch.float64))
    torch.testing.assert_close(rows, torch.full_like(rows, 0.9), rtol=1e-6, atol=0)
