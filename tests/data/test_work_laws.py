"""Laws of the minibatches. Seeds are fixed; each test states its false-alarm level."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from otafl.core.contracts import Cohort
from otafl.core.rng import Streams
from otafl.data.work import LocalData

pytestmark = pytest.mark.law

ROUNDS = 4000


def minibatches(count: int, batch: int, devices: int = 1, steps: int = 1) -> NDArray[np.int64]:
    """[ROUNDS, steps, devices, batch]: sample numbers, every device with the samples 0..count-1."""
    index = torch.arange(count).expand(1, devices, count)
    held = torch.full((1, devices), count)
    label = torch.arange(count)
    data = LocalData(
        label[:, None].float(), label, index, held, count, Streams([11], [4]), batch, steps
    )
    device, zero = torch.arange(devices), torch.zeros(devices, dtype=torch.int64)
    ones = torch.ones(devices)
    cohort = Cohort(zero, device, ones, zero, zero, zero, ones.bool(), (devices,), devices)
    works = [data.work(round, cohort) for round in range(ROUNDS)]
    return np.array([[w.batch(step).y.numpy() for step in range(steps)] for w in works])


@pytest.mark.parametrize(("count", "batch"), [(20, 6), (150, 6), (40, 32), (6, 1)])
def test_uniform_over_samples(count: int, batch: int) -> None:
    """How often each sample is in a minibatch, over 4,000: (n - 1) / n of Pearson's statistic with
    the variance R p (1 - p), p = B / n, is chi-square with n - 1 degrees of freedom, since
    inclusions are correlated by -1 / (n - 1). Two-sided, level 1e-4."""
    drawn = minibatches(count, batch)
    times = np.bincount(drawn.ravel(), minlength=count)
    share = batch / count
    spread = ((times - ROUNDS * share) ** 2).sum() / (ROUNDS * share * (1 - share))
    statistic = spread * (count - 1) / count
    law = stats.chi2(count - 1)
    assert law.ppf(0.5e-4) < statistic < law.isf(0.5e-4)


def test_subsets_are_equally_likely() -> None:
    """Each of the 20 subsets of 3 out of 6, over 4,000 minibatches: chi-square, level 1e-4."""
    drawn = np.sort(minibatches(6, 3).reshape(ROUNDS, 3), 1)
    place = {subset: i for i, subset in enumerate(combinations(range(6), 3))}
    times = np.bincount([place[tuple(row)] for row in drawn.tolist()], minlength=20)
    assert stats.chisquare(times).pvalue > 1e-4


def test_no_sample_twice() -> None:
    drawn = np.sort(minibatches(9, 7, devices=3), -1)
    assert (np.diff(drawn, axis=-1) > 0).all()


@pytest.mark.parametrize("between", ["steps", "rounds", "devices"])
def test_independent_between(between: str) -> None:
    """The overlap of two minibatches of 5 out of 12 is hypergeometric if they are independent, over
    about 4,000 pairs: chi-square of its histogram, level 1e-4."""
    drawn = minibatches(12, 5, devices=2, steps=2)
    pair = {
        "steps": (drawn[:, 0, 0], drawn[:, 1, 0]),
        "rounds": (drawn[:-1, 0, 0], drawn[1:, 0, 0]),
        "devices": (drawn[:, 0, 0], drawn[:, 0, 1]),
    }
    first, second = pair[between]
    overlap = (first[:, :, None] == second[:, None, :]).sum((1, 2))
    expected = stats.hypergeom(12, 5, 5).pmf(np.arange(6)) * len(overlap)
    assert stats.chisquare(np.bincount(overlap, minlength=6), expected).pvalue > 1e-4
