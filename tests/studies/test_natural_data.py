"""What the studies of natural data share, and the counts that the study of roles compares with."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from studies.natural.roles import predict_by_counts
from studies.natural.shared import (
    compare_pairs,
    replace_diverged,
)

pytestmark = pytest.mark.exact


def test_intervals_are_over_people() -> None:
    own = np.array([[1.0, 2.0, 4.0], [3.0, 2.0, 6.0]])
    base = np.zeros((2, 3))
    mean, low, high, p = compare_pairs(own, base)
    by_person = own.mean(0)
    test = stats.ttest_1samp(by_person, 0.0)
    interval = test.confidence_interval(0.95)
    assert (mean, p) == pytest.approx((3.0, test.pvalue))
    assert (low, high) == pytest.approx(interval)


def test_divergence_is_no_gain() -> None:
    errors = np.array([[np.nan, 2.0, np.nan], [5.0, np.nan, np.nan], [4.0, 2.0, np.nan]])
    found = replace_diverged(errors, np.array([1.0, 3.0, 7.0]))
    assert found.tolist() == [[5.0, 2.0, 7.0], [5.0, 3.0, 7.0], [4.0, 2.0, 7.0]]


def test_counts_interpolate_by_witten_and_bell() -> None:
    """Of tokens 0 and 1: after 0 comes 1 twice, after 1 comes 0 once; in all 1, 1, 0."""
    train = np.array([[0], [0], [1]]), np.array([[1], [1], [0]])
    p = predict_by_counts(train, np.array([[0]]), 1, 2)
    shorter = (np.array([1, 2]) + 2 * 0.5) / (3 + 2)
    assert p[0] == pytest.approx((np.array([0, 2]) + 1 * shorter) / (2 + 1))
    assert p.sum() == pytest.approx(1.0)
