"""Laws, checks, and the intervals that a measured number must lie in.

The false-alarm level of the whole suite is at most 1e-3, divided evenly (Bonferroni): a run can
have up to MOST_CHECKS checks, each at LEVEL. Seeds are fixed, so an installation that passes always
does. Deterministic checks have a tolerance instead, for rounding or for a numerical solution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from otafl.validation.bench import Bench, BenchRecord

SUITE_LEVEL = 1e-3
MOST_CHECKS = 1500
LEVEL = SUITE_LEVEL / MOST_CHECKS
WIDTH = float(stats.norm.isf(LEVEL / 2))
"""Half width of the interval of a normal number, in standard deviations."""

KOLMOGOROV_MEAN = math.sqrt(math.pi / 2.0) * math.log(2.0)

ROUNDING = 1e-6


@dataclass(frozen=True)
class Check:
    """Measured number, its expected value, and the interval that it must lie in.

    Parameters
    ----------
    expected, measured : float
        Value by the law, and measured value.
    low, high : float
        Ends of the interval.
    case : str
        Case of the law.
    """

    expected: float
    measured: float
    low: float
    high: float
    case: str = ""

    @property
    def is_passed(self) -> bool:
        """Whether the number is in its interval; NaN is not."""
        return bool(self.low <= self.measured <= self.high)

    @property
    def signed_strain(self) -> float:
        """Deviation from the expected value over that of the interval's end.

        It is 0 at the expected value, 1 or -1 at the end, and infinite if nothing was measured.
        """
        if math.isnan(self.measured):
            return math.inf
        off = self.measured - self.expected
        room = abs((self.high if off > 0 else self.low) - self.expected)
        if off == 0 or math.isinf(room):
            return 0.0
        return off / room if room else math.copysign(math.inf, off)

    @property
    def strain(self) -> float:
        """Magnitude of the signed strain."""
        return abs(self.signed_strain)


@dataclass(frozen=True)
class Law:
    """Law of the uplink.

    Parameters
    ----------
    name : str
        Family, and subject of the law.
    source : str
        Paper or standard, with its equation.
    run : callable
        Function that runs the checks on a bench.
    """

    name: str
    source: str
    run: Callable[[Bench], Iterable[Check]]


def state_law(
    name: str,
    source: str,
    case: str = "",
    over: Collection[Any] | Callable[[], Collection[Any]] = (),
) -> Callable[[Callable[..., Iterable[Check]]], Law]:
    """Declare a law from the function that runs its checks.

    Parameters
    ----------
    name : str
        Family, and subject of the law.
    source : str
        Paper or standard, with its equation.
    case : str
        Format of the case for a value, which precedes the case of each check.
    over : Collection, or callable
        Values for which the function is run as `run(bench, value)`, or a function that lists them;
        it is run once without a value if there are none.

    Returns
    -------
    callable
        Decorator that returns a Law.
    """

    def law(run: Callable[..., Iterable[Check]]) -> Law:
        def run_each(bench: Bench) -> Iterator[Check]:
            for value in over() if callable(over) else over:
                for one in run(bench, value):
                    cases = (case.format(value), one.case)
                    yield replace(one, case=", ".join(part for part in cases if part))

        return Law(name, source, run_each if over else run)

    return law


def check_exact(
    expected: float, measured: float, tolerance: float = ROUNDING, case: str = ""
) -> Check:
    """Check a deterministic number.

    Parameters
    ----------
    expected, measured : float
        Value by the law, and measured value.
    tolerance : float
        Half width of the interval, relative to the expected value, and absolute if that is 0.
    case : str
        Case of the law.

    Returns
    -------
    Check
        Two-sided check.
    """
    room = tolerance * abs(expected) if expected else tolerance
    return Check(expected, measured, expected - room, expected + room, case)


def check_ratios(
    found: np.ndarray, law: np.ndarray, tolerance: float = ROUNDING, case: str = ""
) -> Check:
    """Check deterministic numbers over their law, at the largest deviation from one.

    Parameters
    ----------
    found, law : ndarray
        Measured values, and values by the law.
    tolerance : float
        Largest deviation of the ratio from one.
    case : str
        Case of the law.

    Returns
    -------
    Check
        Two-sided check of the ratio.
    """
    ratio = (np.asarray(found) / np.asarray(law)).ravel()
    return check_exact(1.0, float(ratio[np.abs(ratio - 1.0).argmax()]), tolerance, case)


def check_at_most(
    bound: float, measured: float, tolerance: float = ROUNDING, case: str = ""
) -> Check:
    """Check that a deterministic number does not exceed a bound."""
    return Check(bound, measured, -math.inf, bound * (1.0 + tolerance), case)


def check_at_least(bound: float, measured: float, case: str = "") -> Check:
    """Check that a deterministic number reaches a bound."""
    return Check(bound, measured, bound, math.inf, case)


def check_mean(expected: float, sample: np.ndarray, case: str = "", bias: float = 0.0) -> Check:
    """Check the mean of independent numbers by Student's t distribution.

    Parameters
    ----------
    expected : float
        Mean by the law.
    sample : ndarray
        Independent numbers.
    case : str
        Case of the law.
    bias : float
        Possible error of the law itself.

    Returns
    -------
    Check
        Two-sided check.
    """
    sample = np.asarray(sample, dtype=float).ravel()
    measured = float(sample.mean())
    spread = float(sample.std(ddof=1)) / math.sqrt(sample.size)
    room = float(stats.t.isf(LEVEL / 2, sample.size - 1)) * spread + bias
    return Check(expected, measured, expected - room, expected + room, case)


def check_normal(expected: float, measured: float, deviation: float, case: str = "") -> Check:
    """Check a number with a normal distribution.

    Parameters
    ----------
    expected, measured : float
        Mean by the law, and measured value.
    deviation : float
        Known standard deviation.
    case : str
        Case of the law.

    Returns
    -------
    Check
        Two-sided check.
    """
    room = WIDTH * deviation
    return Check(expected, measured, expected - room, expected + room, case)


def check_mean_at_most(bound: float, sample: np.ndarray, case: str = "") -> Check:
    """Check that the mean of independent numbers does not exceed a bound."""
    two_sided = check_mean(bound, sample, case)
    return Check(bound, two_sided.measured, -math.inf, two_sided.high, case)


def check_mean_square(expected: float, ratio: np.ndarray, freedom: int, case: str = "") -> Check:
    """Check the mean of squared normal numbers, each over its variance.

    Parameters
    ----------
    expected : float
        Factor of the numbers that are shown.
    ratio : ndarray
        Squares over variances.
    freedom : int
        Degrees of freedom of all numbers.
    case : str
        Case of the law.

    Returns
    -------
    Check
        Check by the chi-square distribution.
    """
    low, high = stats.chi2.ppf([LEVEL / 2, 1 - LEVEL / 2], freedom) / freedom
    return Check(expected, expected * float(np.mean(ratio)), expected * low, expected * high, case)


def check_normal_errors(law: np.ndarray, record: BenchRecord, case: str = "") -> Check:
    """Check the squared errors of a record, whose coordinates are normal.

    Parameters
    ----------
    law : ndarray, [R, S] or flat
        Variance of the error, infinite if all devices are silent.
    record : BenchRecord
        The measurements.
    case : str
        Case of the law.

    Returns
    -------
    Check
        Check by the chi-square distribution.
    """
    on = np.isfinite(law)
    ratio = record.error.reshape(law.shape)[on] / law[on]
    return check_mean_square(
        float(law[on].mean()), ratio, ratio.size * record.num_coordinates, case
    )


def check_share(expected: float, count: int, of: int, case: str = "") -> Check:
    """Check the number of events in independent trials, by the binomial distribution.

    Parameters
    ----------
    expected : float
        Probability by the law.
    count, of : int
        Number of events, and number of trials.
    case : str
        Case of the law.

    Returns
    -------
    Check
        Two-sided check of the share.
    """
    low, high = stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], of, expected) / of
    return Check(expected, count / of, float(low), float(high), case)


def check_uncorrelated(rows: np.ndarray, case: str = "") -> Check:
    """Check that rows [m, n] of complex numbers with unit power and mean zero are independent.

    For every pair of rows h, h', n |mean(h h')|^2 and n |mean(h h'^*)|^2 are exponential with mean
    one, in the limit of long rows. The measured number is the largest of them.
    """
    count, length = rows.shape
    pairs = np.triu_indices(count, 1)
    powers = [np.abs((rows @ other.T)[pairs]) ** 2 / length for other in (rows, rows.conj())]
    tried = 2 * len(pairs[0])
    most = math.log(tried / LEVEL)
    return Check(math.log(tried), float(np.max(powers)), 0.0, most, case)


def check_distribution(
    sample: np.ndarray, distribution: Callable[[np.ndarray], np.ndarray], case: str = ""
) -> Check:
    """Check the distribution function of independent numbers, by Kolmogorov and Smirnov.

    Parameters
    ----------
    sample : ndarray
        Independent numbers.
    distribution : callable
        Distribution function by the law.
    case : str
        Case of the law.

    Returns
    -------
    Check
        One-sided check. The measured number is the distance of the two functions. The expected one
        is its mean, in the limit of many numbers.
    """
    values = np.sort(np.asarray(sample, dtype=float).ravel())
    count = values.size
    law, step = distribution(values), np.arange(count + 1) / count
    distance = max(float((step[1:] - law).max()), float((law - step[:-1]).max()))
    root = math.sqrt(count)
    most = float(stats.kstwobign.isf(LEVEL)) / root
    return Check(KOLMOGOROV_MEAN / root, distance, 0.0, most, case)
