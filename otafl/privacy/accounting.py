r"""Gaussian differential privacy (GDP), and its amplification by sampling.

A mechanism is mu-GDP if telling two neighbouring inputs apart by its output is at least as
difficult as telling N(0, 1) from N(mu, 1). Mechanisms in sequence add in squares, :math:`\mu^2 =
\sum_t \mu_t^2` (corollary 3.3 of Dong et al.).

If a device takes part in a round with probability q, independently and in secret, a round reveals
less. The package dp-accounting, `pip install 'otafl[privacy]'`, computes this with the privacy-loss
distributions of the sampled Gaussian mechanism. Its input are the mu_t of the rounds. Those within
a level of a grid, see `LEVELS_AN_OCTAVE`, count as the largest of them.

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
"""Levels per octave of the mu of sampled rounds, 4.4 % each."""

LEAST, MOST = 2.0**-12, 4.0
"""Smallest and largest mu of a sampled round.

A smaller one counts as the smallest. For a larger one, the amplification by sampling is negligible
and not counted.
"""

LEVELS = round(LEVELS_AN_OCTAVE * math.log2(MOST / LEAST)) + 1

PRECISION = 1e-3
"""Relative precision of the mu that a bound allows."""

INTERVAL = 1e-3
"""Width of the cells of a privacy-loss distribution."""

Counts = tuple[tuple[float, int], ...]
"""The mu of sampled rounds and how many have it, in ascending order of mu."""


def compute_delta(mu: float, epsilon: float) -> float:
    r"""Compute delta(epsilon) of a mu-GDP mechanism.

    Parameters
    ----------
    mu : float
        Parameter of the mechanism.
    epsilon : float
        Bound on the privacy loss.

    Returns
    -------
    float
        Probability delta for which the mechanism is (epsilon, delta)-private.

    Notes
    -----
    Corollary 2.13 of Dong et al.:

    .. math::
        \delta(\epsilon) = \Phi(\mu / 2 - \epsilon / \mu)
            - e^\epsilon \Phi(-\mu / 2 - \epsilon / \mu)
    """
    from scipy import special  # takes a tenth of a second, only in runs that clip

    if mu <= 0.0:
        return 0.0
    lost = epsilon + special.log_ndtr(-mu / 2.0 - epsilon / mu)
    return max(0.0, float(special.ndtr(mu / 2.0 - epsilon / mu) - math.exp(lost)))


@functools.lru_cache(maxsize=4096)
def compute_epsilon(mu: float, delta: float) -> float:
    """Compute the epsilon of a mu-GDP mechanism at a delta."""
    from scipy import special

    if compute_delta(mu, 0.0) <= delta:
        return 0.0
    # P(loss > epsilon) of a loss N(mu^2/2, mu^2) is above delta(epsilon)
    most = mu**2 / 2.0 + mu * float(1.0 - special.ndtri(delta))
    return _find_root(lambda epsilon: compute_delta(mu, epsilon) - delta, 0.0, max(most, 1e-6))


@functools.lru_cache(maxsize=4096)
def compute_mu(epsilon: float, delta: float) -> float:
    """Compute the largest mu for which a mechanism is (epsilon, delta)-private."""
    least, most = 1e-12, 1.0
    while compute_delta(most, epsilon) < delta:
        most *= 2.0
    while compute_delta(least, epsilon) > delta:
        least /= 1e3
    return _find_root(lambda mu: compute_delta(mu, epsilon) - delta, least, most)


def _find_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Find the zero of a function between low and high."""
    from scipy import optimize

    return float(optimize.brentq(function, low, high, xtol=1e-15, rtol=1e-13))


def compute_sampled_epsilon(
    counts: Counts, probability: float, delta: float, replace: bool
) -> float:
    """Compute the epsilon of sampled rounds.

    Parameters
    ----------
    counts : tuple of (float, int)
        The mu of rounds, and how many have it.
    probability : float
        Probability with which a device takes part in a round.
    delta : float
        Probability delta of the guarantee.
    replace : bool
        Whether neighbours have other data, or else no data. mu is the distance between the two in
        both cases.

    Returns
    -------
    float
        Bound epsilon on the privacy loss.

    Raises
    ------
    UserError
        If the package dp-accounting is missing.
    """
    if not counts:
        return 0.0
    return float(_compose(counts, probability, replace).get_epsilon(delta))


def compute_sampled_mu(
    epsilon: float, delta: float, rounds: int, probability: float, replace: bool
) -> float:
    """Compute the largest mu up to `MOST` that all of so many sampled rounds can have.

    Parameters
    ----------
    epsilon, delta : float
        Guarantee of all rounds.
    rounds : int
        Number of rounds.
    probability : float
        Probability with which a device takes part in a round.
    replace : bool
        Whether neighbours have other data, or else no data.

    Returns
    -------
    float
        The mu, at most 0.1 % too small; 0 if even `LEAST` exceeds epsilon.

    Raises
    ------
    UserError
        If the package dp-accounting is missing.
    """
    low, high = LEAST, MOST * (1.0 + PRECISION)
    while high > low * (1.0 + PRECISION):
        mu = math.sqrt(low * high)
        found = compute_sampled_epsilon(((mu, rounds),), probability, delta, replace)
        low, high = (mu, high) if found <= epsilon else (low, mu)
    return min(low, MOST) if low > LEAST else 0.0


@functools.lru_cache(maxsize=64)
def _compose(counts: Counts, probability: float, replace: bool) -> Any:
    """Return the accountant of all rounds."""
    dp, pld = import_dp_accounting()
    relations = dp.NeighboringRelation
    relation = relations.REPLACE_ONE if replace else relations.ADD_OR_REMOVE_ONE
    accountant = pld.PLDAccountant(relation, INTERVAL)
    for mu, rounds in counts:
        # in units of the clipping norm: replacing data changes a payload by up to two of them
        noise = (2.0 if replace else 1.0) / mu
        event = dp.PoissonSampledDpEvent(probability, dp.GaussianDpEvent(noise))
        accountant.compose(event, rounds)
    return accountant


def import_dp_accounting() -> tuple[Any, Any]:
    """Import dp-accounting and its module of privacy-loss distributions.

    Raises UserError if the package is missing.
    """
    dp_accounting = import_extra(
        "devices.selection: 'poisson' with privacy.clip",
        "privacy",
        "dp_accounting.pld",
        "dp_accounting",
        instead=", or a selection that draws no sample",
    )
    return dp_accounting, dp_accounting.pld
