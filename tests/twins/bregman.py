"""Bregman divergences of exponential families, their proximal maps and envelopes: the theory of
pFedBreD, of which the program has the Gaussian case.

Shi et al. 2023, "PRIOR: Personalized Prior for Reactivating the Information Overlooked in Federated
Learning", section 3 and table 7. A family has a log-normaliser g of the natural parameter s and its
convex conjugate g* of the mean parameter x; grad g and grad g* are inverse to each other, and

    D(x, m) = g*(x) - g*(m) - <grad g*(m), x - m>          # eq. (1), of g*
    prox f(m) = argmin over x of f(x) + lambda D(x, m)     # eq. (2)
    env f(m) = the minimum,  grad env f(m) = lambda grad^2 g*(m) (m - prox f(m))

Table 7 prints the Gaussian maps for Sigma = I alone, and two of the divergences (Bernoulli,
Poisson) with a natural parameter as second argument; here all take mean parameters. Functions act
on each element; a divergence is summed over the last dimension. Sigma is diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Family:
    """normaliser: g(s). mean: grad g(s). conjugate: g*(x). natural: grad g*(x). curvature: the
    diagonal of grad^2 g*(x). divergence: D(x, m) of each element, in a form without cancellation
    where there is one."""

    normaliser: Map
    mean: Map
    conjugate: Map
    natural: Map
    curvature: Map
    divergence: Callable[[Tensor, Tensor], Tensor]


def gaussian(variance: Tensor | float = 1.0) -> Family:
    """x real; the diagonal of Sigma, which is the variance of a prior with lambda = 1."""
    return Family(
        normaliser=lambda s: 0.5 * variance * s * s,
        mean=lambda s: variance * s,
        conjugate=lambda x: 0.5 * x * x / variance,
        natural=lambda x: x / variance,
        curvature=lambda x: torch.ones_like(x) / variance,
        divergence=lambda x, m: 0.5 * (x - m) ** 2 / variance,
    )


def bernoulli() -> Family:
    """x in (0, 1)."""
    return Family(
        normaliser=lambda s: torch.nn.functional.softplus(s),
        mean=torch.sigmoid,
        conjugate=lambda x: torch.xlogy(x, x) + torch.xlogy(1 - x, 1 - x),
        natural=torch.logit,
        curvature=lambda x: 1 / (x * (1 - x)),
        divergence=lambda x, m: torch.xlogy(x, x / m) + torch.xlogy(1 - x, (1 - x) / (1 - m)),
    )


def poisson() -> Family:
    """x > 0."""
    return Family(
        normaliser=torch.exp,
        mean=torch.exp,
        conjugate=lambda x: torch.xlogy(x, x) - x,
        natural=torch.log,
        curvature=lambda x: 1 / x,
        divergence=lambda x, m: torch.xlogy(x, x / m) - x + m,
    )


def exponential() -> Family:
    """x > 0; s < 0."""
    return Family(
        normaliser=lambda s: -torch.log(-s),
        mean=lambda s: -1 / s,
        conjugate=lambda x: -torch.log(x) - 1,
        natural=lambda x: -1 / x,
        curvature=lambda x: 1 / x**2,
        divergence=lambda x, m: x / m - torch.log(x / m) - 1,
    )


FAMILIES: dict[str, Callable[[], Family]] = {
    "gaussian": gaussian,
    "bernoulli": bernoulli,
    "poisson": poisson,
    "exponential": exponential,
}


def divergence(family: Family, x: Tensor, m: Tensor) -> Tensor:
    """D(x, m) [...] of mean parameters [..., d]."""
    return family.divergence(x, m).sum(-1)


def prox_steps(
    family: Family,
    gradient: Map,
    start: Tensor,
    centre: Tensor,
    step: float,
    penalty: float,
    steps: int,
) -> Tensor:
    """prox f(centre) of a loss with this gradient, by gradient steps from `start`:
    x <- x - step [grad f(x) + penalty (grad g*(x) - grad g*(centre))]."""
    x, anchor = start, family.natural(centre)
    for _ in range(steps):
        x = x - step * (gradient(x) + penalty * (family.natural(x) - anchor))
    return x


def mirror_steps(
    family: Family,
    gradient: Map,
    start: Tensor,
    centre: Tensor,
    step: float,
    penalty: float,
    steps: int,
) -> Tensor:
    """As `prox_steps`, with the steps taken in the natural parameter, whence x never leaves its
    domain: s <- s - step [grad f(grad g(s)) + penalty (s - grad g*(centre))]."""
    s, anchor = family.natural(start), family.natural(centre)
    for _ in range(steps):
        s = s - step * (gradient(family.mean(s)) + penalty * (s - anchor))
    return family.mean(s)


def linear_prox(family: Family, slope: Tensor, centre: Tensor, penalty: float) -> Tensor:
    """prox of <slope, x> in closed form: the natural parameter moves by -slope / penalty."""
    return family.mean(family.natural(centre) - slope / penalty)


def envelope(family: Family, loss: Map, solved: Tensor, centre: Tensor, penalty: float) -> Tensor:
    """env f(centre) [...], of the prox `solved` [..., d]."""
    return loss(solved) + penalty * divergence(family, solved, centre)


def envelope_gradient(family: Family, solved: Tensor, centre: Tensor, penalty: float) -> Tensor:
    """grad env f(centre) [..., d], of the prox `solved`."""
    return penalty * family.curvature(centre) * (centre - solved)
