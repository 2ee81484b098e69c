"""Approximate message passing where it fails, where there is nothing to recover, and its threshold
by search."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from otafl.codecs.amp import compute_default_threshold, compute_minimax_threshold, run_amp

pytestmark = pytest.mark.exact


def test_at_8_by_256_it_diverges_and_the_best_is_kept() -> None:
    """The last estimate is astronomically far off; the one that is kept fits y no worse than 0."""
    rng = np.random.default_rng(0)
    x = np.zeros((20, 256))
    for row in x:
        row[rng.choice(256, 8, replace=False)] = rng.standard_normal(8)
    matrix = torch.from_numpy(rng.standard_normal((8, 256)) / math.sqrt(8))
    y = torch.from_numpy(x) @ matrix.T
    best = run_amp(y, matrix, 300, 1.5)
    assert best.isfinite().all()
    assert ((y - best @ matrix.T).norm(dim=1) <= y.norm(dim=1) * (1.0 + 1e-9)).all()


def test_the_default_threshold_falls_with_the_ratio_of_measurements() -> None:
    """As the setting's description says."""
    values = [round(compute_default_threshold(m, 1000), 2) for m in (27, 100, 500)]
    assert values == [2.35, 1.95, 1.4]


def test_minimax_threshold_has_the_least_worst_risk() -> None:
    """By search, over non-zero reals of size 0.5 to 30 in noise of variance 1: the worst are the
    largest."""
    z = np.linspace(-10.0, 10.0, 4001)
    density = stats.norm.pdf(z) * (z[1] - z[0])

    def risk(x: float, a: float) -> float:
        r = x + z
        return float((density * (np.sign(r) * np.maximum(np.abs(r) - a, 0.0) - x) ** 2).sum())

    for share in (0.003, 0.05, 0.2):

        def worst(a: float, share: float = share) -> float:
            most = max(risk(x, a) for x in (0.5, 1.0, 2.0, 4.0, 8.0, 30.0))
            return (1.0 - share) * risk(0.0, a) + share * most

        found = optimize.minimize_scalar(worst, bounds=(0.1, 4.0), method="bounded")
        assert compute_minimax_threshold(share) == pytest.approx(found.x, abs=2e-3)
