"""Feasible counts, against all that there are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from twins.counts import find_nearest_counts

from otafl.uplink.type_based.histograms import find_nearest_type, project

pytestmark = pytest.mark.exact


def test_nearest_type_is_the_nearest() -> None:
    """Of all types: 400 draws of three and four levels, from close to far off."""
    rng = np.random.default_rng(0)
    for count, total, spread in itertools.product((3, 4), (0, 1, 5), (0.2, 1.0, 4.0)):
        near = rng.multinomial(total, np.full(count, 1 / count), 20).T
        y = near + spread * rng.standard_normal((count, 20))
        senders = torch.full((1, 1, 20), float(total), dtype=torch.float64)
        got = find_nearest_type(torch.from_numpy(y)[None], senders)[0].numpy()
        for column in range(20):
            np.testing.assert_array_equal(got[:, column], find_nearest_counts(y[:, column], total))


def test_each_count_by_itself() -> None:
    y = torch.tensor([[[-0.7], [1.4], [3.2]]])
    senders = torch.tensor([[2.0]])
    assert project(y, senders, "round").flatten().tolist() == [0.0, 1.0, 2.0]
    assert project(y, senders, "lattice").flatten().tolist() == [0.0, 0.0, 2.0]
    assert project(y, senders, "none") is y
