"""Turn what the noise hides into guarantees: Gaussian differential privacy, and what sampling adds.

A mechanism is mu-GDP if telling two neighbouring inputs apart by its output is no easier than
telling N(0, 1) from N(mu, 1). Then it is (epsilon, delta(epsilon))-private with

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu),

and mechanisms one after the other add in squares, mu^2 = sum_t mu_t^2. Where a device takes part in
a round with probability q by itself, and nobody learns whether it does, less is told; that is
reckoned by the package dp-accounting, `pip install 'otafl[privacy]'`, with privacy-loss
distributions of the sampled Gaussian mechanism. It is given the mu_t of the rounds rounded up to a
grid of `LEVELS_AN_OCTAVE`.

References
----------
Dong, Roth, Su 2019, "Gaussian Differential Privacy", corollary 2.13 and corollary 3.3.
Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, "Connect the Dots: Tighter Discrete
    Approximations of Privacy Loss Distributions".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from otafl.core.packages import import_extra

LEVELS_AN_OCTAVE = 16
"""Steps in which the mu of a sampled round is rounded up, 4.4 % each."""

LEAST, MOST = 2.0**-12, 4.0
"""Smallest and largest mu of a sampled round. Less counts as the smallest; of more, sampling hides
next to nothing, and none of it is counted."""

LEVELS = round(LEVELS_AN_OCTAVE * math.log2(MOST / LEAST)) + 1

INTERVAL = 1e-3
"""Width of the cells of a privacy loss's distribution."""

Counts = tuple[tuple[int, int], ...]
"""(level, rounds of that level), ascending."""


def compute_delta(mu: float, epsilon: float) -> float:
    """Return delta(epsilon) of a mu-GDP mechanism."""
    from scipy import special  # a tenth of a second, which runs that do not clip need not wait

    if mu <= 0.0:
        return 0.0
    lost = epsilon + special.log_ndtr(-mu / 2.0 - epsilon / mu)
    return max(0.0, float(special.ndtr(mu / 2.0 - epsilon / mu) - math.exp(lost)))


@functools.lru_cache(maxsize=4096)
def compute_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of a mu-GDP mechanism at this delta."""
    from scipy import special

    if compute_delta(mu, 0.0) <= delta:
        return 0.0
    # P(loss > epsilon) of a loss N(mu^2/2, mu^2) is above delta(epsilon)
    most = mu**2 / 2.0 + mu * float(1.0 - special.ndtri(delta))
    return _find_root(lambda epsilon: compute_delta(mu, epsilon) - delta, 0.0, max(most, 1e-6))


@functools.lru_cache(maxsize=4096)
def compute_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu that keeps (epsilon, delta)."""
    least, most = 1e-12, 1.0
    while compute_delta(most, epsilon) < delta:
        most *= 2.0
    while compute_delta(least, epsilon) > delta:
        least /= 1e3
    return _find_root(lambda mu: compute_delta(mu, epsilon) - delta, least, most)


def _find_root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy import optimize

    return float(optimize.brentq(function, low, high, xtol=1e-15, rtol=1e-13))


def get_level_mu(level: int) -> float:
    """Return the mu that a level of the grid stands for."""
    return float(LEAST * 2.0 ** (level / LEVELS_AN_OCTAVE))


def compute_sampled_epsilon(
    counts: Counts, probability: float, delta: float, replace: bool
) -> float:
    """Return the epsilon of sampled rounds.

    Parameters
    ----------
    counts : how many rounds have which mu, as levels of the grid.
    probability : with which a device takes part in each.
    delta : that it is at.
    replace : neighbours have other data, else none; mu is the distance between the two either way.

    Raises
    ------
    UserError : without the package.
    """
    if not counts:
        return 0.0
    return float(_compose(counts, probability, replace).get_epsilon(delta))


def compute_sampled_level(
    epsilon: float, delta: float, rounds: int, probability: float, replace: bool
) -> int | None:
    """Return the highest level that so many sampled rounds may all have within (epsilon, delta);
    None where even the lowest takes more. Raises UserError without the package."""
    low, high = -1, LEVELS
    while high - low > 1:
        level = (low + high) // 2
        found = compute_sampled_epsilon(((level, rounds),), probability, delta, replace)
        low, high = (level, high) if found <= epsilon else (low, level)
    return low if low >= 0 else None


@functools.lru_cache(maxsize=64)
def _compose(counts: Counts, probability: float, replace: bool) -> Any:
    """Return the accountant of all rounds."""
    dp, pld = import_dp_accounting()
    relations = dp.NeighboringRelation
    relation = relations.REPLACE_ONE if replace else relations.ADD_OR_REMOVE_ONE
    accountant = pld.PLDAccountant(relation, INTERVAL)
    for level, rounds in counts:
        # in units of one device's largest payload, which replacing moves by two
        noise = (2.0 if replace else 1.0) / get_level_mu(level)
        event = dp.PoissonSampledDpEvent(probability, dp.GaussianDpEvent(noise))
        accountant.compose(event, rounds)
    return accountant


def import_dp_accounting() -> tuple[Any, Any]:
    """Import dp-accounting, and its accountant of privacy losses. Raises UserError without it."""
    dp_accounting = import_extra(
        "devices.selection: 'poisson' with privacy.clip",
        "privacy",
        "dp_accounting.pld",
        "dp_accounting",
        instead=", or a selection that draws no sample",
    )
    return dp_accounting, dp_accounting.pld
