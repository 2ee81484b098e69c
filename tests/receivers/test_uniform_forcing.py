"""Uniform forcing against random combiners, the eigenvector, and by hand."""

from __future__ import annotations

import pytest
import torch
from support.combiners import channels, weakest

from otafl.receivers.eigen import Eigen
from otafl.receivers.uniform_forcing import UniformForcing

pytestmark = pytest.mark.exact


def test_uniform_forcing_beats_random_combiners_and_the_eigenvector() -> None:
    """The best of 1,000 random combiners in every one of 40 states, 8 devices, 4 antennas, unequal
    budgets."""
    h, budget = channels(), torch.linspace(0.5, 2.0, 8, dtype=torch.float64).expand(40, 8)
    sends = torch.ones(40, 8, dtype=torch.bool)
    ours = weakest(h, UniformForcing().combine(h, sends, budget), budget)
    z = channels(1000, 1, 4, seed=1)[:, 0, 0]
    random = (z / z.norm(dim=-1, keepdim=True)).conj() @ h[:, 0].mT  # [S, 1000, K]
    best = (random.abs().square() * budget[:, None]).amin(-1).amax(1)
    assert (ours > best).all()
    start = weakest(h, Eigen().combine(h, sends, budget), budget)
    assert (ours >= start).all()
    assert ours.mean() > 2 * start.mean()


def test_uniform_forcing_of_two_devices_by_hand() -> None:
    """Orthogonal channels of equal norm: both get half of it."""
    h = torch.eye(2, dtype=torch.complex128)[None, None]
    f = UniformForcing().combine(h, torch.ones(1, 2).bool(), torch.ones(1, 2))
    assert weakest(h, f, torch.ones(1, 2)).item() == pytest.approx(0.5, rel=1e-3)
