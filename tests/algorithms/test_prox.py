"""Holds the proximal solvers to closed forms of linear and quadratic losses, and to their error on
a network.

Every number here is deterministic: enumerations and fixed seeds.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from otafl.algorithms.prox import take_gradient_steps, take_nesterov_steps
from otafl.models.span import Gradient


class Curved:
    """Is a span over vectors [n, d] with loss a/2 |x - b|^2 + <c, x>."""

    def __init__(self, a: float, b: Tensor, c: Tensor) -> None:
        self.a, self.b, self.c = a, b, c

    def compute_gradient(self, point: Tensor) -> Gradient:
        loss = 0.5 * self.a * ((point - self.b) ** 2).sum(1) + (self.c * point).sum(1)
        return Gradient(loss, {"x": self.a * (point - self.b) + self.c}, point)

    def descend_(self, point: Tensor, slope: Gradient, step: Tensor) -> None:
        assert isinstance(slope.grads, dict)
        point.sub_(step[:, None] * slope.grads["x"])


def vectors(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, dtype=torch.float64, generator=generator)


B, C, START, MEAN = (vectors(seed) for seed in range(4))
PENALTY = torch.tensor([15.0, 30.0], dtype=torch.float64)
STEP = torch.tensor([0.01, 0.01], dtype=torch.float64)


@pytest.mark.exact
def test_quadratic_loss() -> None:
    """It gives theta_K = theta* + (1 - alpha (a + lambda))^K (s - theta*), theta* = (a b + lambda
    mu) / (a + lambda), and the envelope's gradient is a lambda / (a + lambda) (mu - b)."""
    a, many = 3.0, 4000
    span = Curved(a, B, torch.zeros_like(C))
    weight = PENALTY[:, None]
    best = (a * B + weight * MEAN) / (a + weight)
    for steps in (1, 5):
        theta, _ = take_gradient_steps(span, START, MEAN, STEP, PENALTY, steps)
        factor = ((1 - STEP * (a + PENALTY)) ** steps)[:, None]
        torch.testing.assert_close(theta, best + factor * (START - best))
    theta, _ = take_gradient_steps(span, START, MEAN, STEP, PENALTY, many)
    torch.testing.assert_close(weight * (MEAN - theta), a * weight / (a + weight) * (MEAN - B))


@pytest.mark.exact
def test_nesterov_steps() -> None:
    """They follow the recurrence written with numbers; one step is a plain one."""
    a = 3.0
    span = Curved(a, B, torch.zeros_like(C))
    best = (a * B + PENALTY[:, None] * MEAN) / (a + PENALTY[:, None])
    factor = (1 - STEP * (a + PENALTY))[:, None]  # of the error, in a step without momentum
    error, before = START - best, START - best
    for j in range(1, 7):
        ahead = error + (j - 1) / (j + 2) * (error - before)
        before, error = error, factor * ahead
        theta, loss = take_nesterov_steps(span, START, MEAN, STEP, PENALTY, j)
        torch.testing.assert_close(theta, best + error)
        torch.testing.assert_close(loss, 0.5 * a * ((START - B) ** 2).sum(1))
    assert torch.equal(START, vectors(2))
