"""Rank correlations of the study that compares power policies on several channels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from studies.rank_by_channel.analyse import correlate, format_correlations

pytestmark = pytest.mark.exact

VALUES = np.random.default_rng(3).normal(size=(3, 6, 4))
"""Of three channels, six policies and four trials."""


def test_correlations_are_spearmans_of_the_drawn_policies_and_trials() -> None:
    trials, policies = np.array([0, 0, 2, 3]), np.array([0, 1, 1, 3, 5, 4])
    found = correlate((VALUES, np.mean), None, trials, policies)
    means = VALUES[:, policies][..., trials].mean(-1)
    expected = [stats.spearmanr(means[0], one).statistic for one in means]
    assert found == pytest.approx(expected)


def test_intervals_grow_by_policies_although_trials_agree() -> None:
    """Four equal trials leave nothing to resample but policies."""
    values = np.repeat([[[1.0], [2.0], [3.0]], [[1.0], [3.0], [2.0]]], 4, axis=2)
    assert format_correlations((values, np.mean)) == ["1.00", "0.50 [-1.00, 1.00]"]
