"""Say what a law says of the uplink, and the intervals that a measured number must fall in.

The false-alarm level of the whole suite is at most 1e-3, shared evenly (Bonferroni): a run may
have up to MOST_CHECKS checks, each at LEVEL. Seeds are fixed, so an installation that passes
always does. Checks without chance in them have a tolerance instead, of rounding or of a numerical
solution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from otafl.laws.bench import Bench, Record

SUITE_LEVEL = 1e-3
MOST_CHECKS = 2000
LEVEL = SUITE_LEVEL / MOST_CHECKS
WIDTH = float(stats.norm.isf(LEVEL / 2))
"""Standard deviations on either side of a normal number."""

KOLMOGOROV_MEAN = math.sqrt(math.pi / 2.0) * math.log(2.0)

ROUNDING = 1e-6


@dataclass(frozen=True)
class Check:
    """Hold a measured number, what the law says it is, and the interval that it must be in.

    case: which of the cases of its law it is.
    """

    expected: float
    measured: float
    low: float
    high: float
    case: str = ""

    @property
    def is_passed(self) -> bool:
        """Return whether the number is in its interval; what is not a number is not."""
        return bool(self.low <= self.measured <= self.high)

    @property
    def strain(self) -> float:
        """Return how far the number is on its way to the end of its interval.

        It is 0 as expected, 1 at the end, and infinite where nothing was measured.
        """
        if math.isnan(self.measured):
            return math.inf
        off = self.measured - self.expected
        room = (self.high if off > 0 else self.low) - self.expected
        if off == 0 or math.isinf(room):
            return 0.0
        return off / room if room else math.inf


@dataclass(frozen=True)
class Law:
    """Hold a law.

    name: family and what it is about. source: paper or standard with its equation. run: the checks,
    on a bench.
    """

    name: str
    source: str
    run: Callable[[Bench], Iterable[Check]]


def state_law(
    name: str, source: str, case: str = "", over: Collection[Any] = ()
) -> Callable[[Callable[..., Iterable[Check]]], Law]:
    """Make a law of the function that runs its checks.

    over: values, for each of which it is run, `run(bench, value)`; `case` says which one it was,
    before what a check says itself.
    """

    def law(run: Callable[..., Iterable[Check]]) -> Law:
        def run_each(bench: Bench) -> Iterator[Check]:
            for value in over:
                for one in run(bench, value):
                    cases = (case.format(value), one.case)
                    yield replace(one, case=", ".join(part for part in cases if part))

        return Law(name, source, run_each if over else run)

    return law


def check_exact(
    expected: float, measured: float, tolerance: float = ROUNDING, case: str = ""
) -> Check:
    """Check a number without chance in it.

    The tolerance is relative to what is expected, absolute where that is 0.
    """
    room = tolerance * abs(expected) if expected else tolerance
    return Check(expected, measured, expected - room, expected + room, case)


def check_ratios(
    found: np.ndarray, law: np.ndarray, tolerance: float = ROUNDING, case: str = ""
) -> Check:
    """Check found over law, without chance in it, where it is farthest from one."""
    ratio = (np.asarray(found) / np.asarray(law)).ravel()
    return check_exact(1.0, float(ratio[np.abs(ratio - 1.0).argmax()]), tolerance, case)


def check_at_most(
    bound: float, measured: float, tolerance: float = ROUNDING, case: str = ""
) -> Check:
    """Check that a number without chance in it keeps a bound."""
    return Check(bound, measured, -math.inf, bound * (1.0 + tolerance), case)


def check_at_least(bound: float, measured: float, case: str = "") -> Check:
    """Check that a number without chance in it reaches a bound."""
    return Check(bound, measured, bound, math.inf, case)


def check_mean(expected: float, sample: np.ndarray, case: str = "", bias: float = 0.0) -> Check:
    """Check the mean of independent numbers by Student's law.

    bias: what the law itself may be off.
    """
    sample = np.asarray(sample, dtype=float).ravel()
    measured = float(sample.mean())
    spread = float(sample.std(ddof=1)) / math.sqrt(sample.size)
    room = float(stats.t.isf(LEVEL / 2, sample.size - 1)) * spread + bias
    return Check(expected, measured, expected - room, expected + room, case)


def check_normal(expected: float, measured: float, deviation: float, case: str = "") -> Check:
    """Check a number with a normal law of known standard deviation."""
    room = WIDTH * deviation
    return Check(expected, measured, expected - room, expected + room, case)


def check_mean_at_most(bound: float, sample: np.ndarray, case: str = "") -> Check:
    """Check that the mean of independent numbers is not above a bound."""
    two_sided = check_mean(bound, sample, case)
    return Check(bound, two_sided.measured, -math.inf, two_sided.high, case)


def check_mean_not_above(worse: np.ndarray, sample: np.ndarray, case: str = "") -> Check:
    """Check that the mean of a sample is not above that of a paired one."""
    room = check_mean(0.0, np.asarray(sample) - np.asarray(worse)).high
    bound = float(np.mean(worse))
    return Check(bound, float(np.mean(sample)), -math.inf, bound + room, case)


def check_mean_below(worse: np.ndarray, sample: np.ndarray, case: str = "") -> Check:
    """Check that the mean of a sample is below that of a paired one, beyond what chance explains.

    The measured number is the end of the interval of the difference.
    """
    difference = (np.asarray(sample) - np.asarray(worse)).ravel()
    room = check_mean(0.0, difference).high
    return Check(0.0, float(difference.mean()) + room, -math.inf, 0.0, case)


def check_mean_square(expected: float, ratio: np.ndarray, freedom: int, case: str = "") -> Check:
    """Check the mean of squared normal numbers, each over its variance.

    freedom: their degrees of freedom in all. Numbers are shown times `expected`.
    """
    low, high = stats.chi2.ppf([LEVEL / 2, 1 - LEVEL / 2], freedom) / freedom
    return Check(expected, expected * float(np.mean(ratio)), expected * low, expected * high, case)


def check_normal_errors(law: np.ndarray, record: Record, case: str = "") -> Check:
    """Check the squared error of every real of a record, normal with the variance `law`.

    law: [R, S], or flat; infinite where nobody is on air.
    """
    on = np.isfinite(law)
    ratio = record.error.reshape(law.shape)[on] / law[on]
    return check_mean_square(float(law[on].mean()), ratio, ratio.size * record.reals, case)


def check_share(expected: float, count: int, of: int, case: str = "") -> Check:
    """Check how often something happens in independent trials, by the binomial law."""
    low, high = stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], of, expected) / of
    return Check(expected, count / of, float(low), float(high), case)


def largest(deviations: np.ndarray, case: str = "") -> Check:
    """Check many standard normal numbers by the largest of their sizes; they may depend on each
    other."""
    sizes = np.abs(np.asarray(deviations, dtype=float)).ravel()
    most = float(stats.norm.isf(LEVEL / 2 / sizes.size))
    return Check(float(stats.norm.isf(0.5 / sizes.size)), float(sizes.max()), 0.0, most, case)


def check_uncorrelated(rows: np.ndarray, case: str = "") -> Check:
    """Check that rows [m, n] of complex numbers of unit power and mean zero are independent.

    For every pair of rows h, h', n |mean(h h')|^2 and n |mean(h h'^*)|^2 are exponential, of mean
    one, in the limit of long rows. The measured number is the largest of them.
    """
    count, length = rows.shape
    pairs = np.triu_indices(count, 1)
    powers = [np.abs((rows @ other.T)[pairs]) ** 2 / length for other in (rows, rows.conj())]
    tried = 2 * len(pairs[0])
    most = math.log(tried / LEVEL)
    return Check(math.log(tried), float(np.max(powers)), 0.0, most, case)


def counts(expected: np.ndarray, observed: np.ndarray, case: str = "") -> Check:
    """Check how often each of several outcomes occurs in independent trials, by Pearson's
    statistic."""
    found = float(((np.asarray(observed) - expected) ** 2 / expected).sum())
    freedom = np.size(observed) - 1
    low, high = stats.chi2.ppf([LEVEL / 2, 1 - LEVEL / 2], freedom)
    return Check(freedom, found, float(low), float(high), case)


def check_distribution(
    sample: np.ndarray, distribution: Callable[[np.ndarray], np.ndarray], case: str = ""
) -> Check:
    """Check that many independent numbers have a distribution function, by Kolmogorov and Smirnov.

    The measured number is their distance, the expected one its mean (in the limit).
    """
    values = np.sort(np.asarray(sample, dtype=float).ravel())
    count = values.size
    law, step = distribution(values), np.arange(count + 1) / count
    distance = max(float((step[1:] - law).max()), float((law - step[:-1]).max()))
    root = math.sqrt(count)
    most = float(stats.kstwobign.isf(LEVEL)) / root
    return Check(KOLMOGOROV_MEAN / root, distance, 0.0, most, case)
