"""The theory behind pFedBreD, which the program has in the Gaussian case alone. Bregman divergences
of the four families: values worked by hand, duality, the closed proximal map
of a linear loss, and envelopes against finite differences.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from twins.bregman import (
    FAMILIES,
    Family,
    bernoulli,
    divergence,
    envelope,
    envelope_gradient,
    exponential,
    gaussian,
    linear_prox,
    mirror_steps,
    poisson,
    prox_steps,
)

pytestmark = pytest.mark.exact

VARIANCE = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
EACH = [gaussian(VARIANCE), *(make() for make in FAMILIES.values())]
X = torch.tensor([0.15, 0.4, 0.8], dtype=torch.float64)
M = torch.tensor([0.3, 0.6, 0.55], dtype=torch.float64)
C = torch.tensor([0.7, -0.4, 0.2], dtype=torch.float64)
PENALTY = 4.0
FAMILY = pytest.mark.parametrize("family", EACH, ids=["gaussian with Sigma", *FAMILIES])


def loss(x: Tensor) -> Tensor:
    """Convex, not quadratic."""
    return (torch.exp(x) * C.abs()).sum(-1) + (C * x).sum(-1)


def slope(x: Tensor) -> Tensor:
    return torch.exp(x) * C.abs() + C


@pytest.mark.parametrize(
    ("family", "x", "m", "value"),
    [
        (bernoulli(), 0.3, torch.sigmoid(torch.tensor(0.7, dtype=torch.float64)), 0.28232175),
        (poisson(), 3.0, torch.exp(torch.tensor(0.7, dtype=torch.float64)), 0.20958957),
        (exponential(), 3.0, torch.tensor(2.0, dtype=torch.float64), 0.09453489),
        (gaussian(4.0), 3.0, torch.tensor(2.0, dtype=torch.float64), 0.125),
    ],
)
def test_values(family: Family, x: float, m: Tensor, value: float) -> None:
    given = torch.tensor([x], dtype=torch.float64)
    assert float(divergence(family, given, m[None])) == pytest.approx(value, abs=5e-9)


@FAMILY
def test_maps_are_gradients_and_inverse(family: Family) -> None:
    s = family.natural(M)
    torch.testing.assert_close(family.mean(s), M)
    for scalar, gradient, at in (
        (family.normaliser, family.mean, s),
        (family.conjugate, family.natural, M),
    ):
        point = at.clone().requires_grad_()
        (found,) = torch.autograd.grad(scalar(point).sum(), point)
        torch.testing.assert_close(gradient(at), found)
    point = M.clone().requires_grad_()
    (found,) = torch.autograd.grad(family.natural(point).sum(), point)
    torch.testing.assert_close(family.curvature(M), found)


@FAMILY
def test_divergence(family: Family) -> None:
    """By its definition (1); by (18) in both arguments' parameters; zero at its centre alone."""
    ours = family.divergence(X, M)
    by_definition = family.conjugate(X) - family.conjugate(M) - family.natural(M) * (X - M)
    torch.testing.assert_close(ours, by_definition)
    s, t = family.natural(M), family.natural(X)
    torch.testing.assert_close(ours, family.conjugate(X) + family.normaliser(s) - X * s)
    by_normaliser = family.normaliser(s) - family.normaliser(t) - family.mean(t) * (s - t)
    torch.testing.assert_close(ours, by_normaliser)
    assert (ours > 0).all()
    torch.testing.assert_close(family.divergence(X, X), torch.zeros_like(X))
    torch.testing.assert_close(divergence(family, X, M), ours.sum())


@FAMILY
def test_mean_minimises_the_expected_divergence(family: Family) -> None:
    """Eq. (15), in the second argument."""
    samples, share = torch.stack([X, M]), torch.tensor([0.3, 0.7], dtype=torch.float64)
    centre = (share @ samples).requires_grad_()
    expected = (share[:, None] * family.divergence(samples, centre.expand(2, 3))).sum()
    (found,) = torch.autograd.grad(expected, centre)
    torch.testing.assert_close(found, torch.zeros_like(X), rtol=0, atol=1e-14)


@FAMILY
def test_prox_of_a_linear_loss(family: Family) -> None:
    closed = linear_prox(family, C, M, PENALTY)
    stationary = C + PENALTY * (family.natural(closed) - family.natural(M))
    torch.testing.assert_close(stationary, torch.zeros_like(C), rtol=0, atol=1e-14)
    solved = mirror_steps(family, lambda _: C, X, M, 0.05, PENALTY, 400)
    torch.testing.assert_close(solved, closed)
    solved = prox_steps(family, lambda _: C, M, M, 0.01, PENALTY, 3000)
    torch.testing.assert_close(solved, closed)


def test_closed_forms_of_the_linear_prox() -> None:
    torch.testing.assert_close(
        linear_prox(gaussian(VARIANCE), C, M, PENALTY), M - VARIANCE * C / PENALTY
    )
    shifted = torch.sigmoid(torch.logit(M) - C / PENALTY)
    torch.testing.assert_close(linear_prox(bernoulli(), C, M, PENALTY), shifted)
    torch.testing.assert_close(linear_prox(poisson(), C, M, PENALTY), M * torch.exp(-C / PENALTY))
    torch.testing.assert_close(linear_prox(exponential(), C, M, PENALTY), M / (1 + M * C / PENALTY))


@FAMILY
def test_envelope_gradient(family: Family) -> None:
    """Eq. (2): against central differences of the attained minimum."""

    def solved(centre: Tensor) -> Tensor:
        return mirror_steps(family, slope, centre, centre, 0.05, PENALTY, 800)

    def value(centre: Tensor) -> Tensor:
        return envelope(family, loss, solved(centre), centre, PENALTY)

    ours = envelope_gradient(family, solved(M), M, PENALTY)
    h = 1e-5
    for place in range(3):
        shift = torch.zeros_like(M)
        shift[place] = h
        found = (value(M + shift) - value(M - shift)) / (2 * h)
        assert float(ours[place]) == pytest.approx(float(found), rel=1e-6)
    assert float(value(M)) < float(loss(M))


def test_spherical_gaussian_is_the_moreau_envelope() -> None:
    """Half the squared distance; gradient steps as the trained methods take them; of a/2 |x - b|^2
    the envelope is a lambda / (2 (a + lambda)) |mu - b|^2."""
    family, a = gaussian(), 3.0
    torch.testing.assert_close(divergence(family, X, M), 0.5 * ((X - M) ** 2).sum())
    theta = X
    for _ in range(5):
        theta = theta - 0.02 * (slope(theta) + PENALTY * (theta - M))
    torch.testing.assert_close(prox_steps(family, slope, X, M, 0.02, PENALTY, 5), theta)
    solved = prox_steps(family, lambda x: a * (x - C), M, M, 0.1, PENALTY, 300)
    torch.testing.assert_close(solved, (a * C + PENALTY * M) / (a + PENALTY))
    value = envelope(family, lambda x: 0.5 * a * ((x - C) ** 2).sum(), solved, M, PENALTY)
    expected = a * PENALTY / (2 * (a + PENALTY)) * ((M - C) ** 2).sum()
    torch.testing.assert_close(value, expected)
    gradient = envelope_gradient(family, solved, M, PENALTY)
    torch.testing.assert_close(gradient, a * PENALTY / (a + PENALTY) * (M - C))


def test_ends_of_the_domain() -> None:
    """0 ln 0 = 0."""
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    m = torch.tensor([0.25, 0.25], dtype=torch.float64)
    expected = torch.log(torch.tensor([4 / 3, 4.0], dtype=torch.float64))
    torch.testing.assert_close(bernoulli().divergence(ends, m), expected)
    torch.testing.assert_close(poisson().divergence(ends[:1], m[:1]), m[:1])
