"""The first eigenvector."""

from __future__ import annotations

import pytest
import torch
from support.combiners import draw_channels

from otafl.receivers.eigen import Eigen

pytestmark = pytest.mark.exact


def test_eigen_receives_the_most_power() -> None:
    h = draw_channels(antennas=12)
    budget = torch.linspace(0.5, 2.0, 8, dtype=torch.float64).expand(40, 8)
    f = Eigen().combine(h, torch.ones(40, 8).bool(), budget)
    best = ((f.conj()[:, :, None] * h).sum(-1).abs().square()[:, 0] * budget).sum(1)
    a = h[:, 0] * budget.sqrt()[..., None]
    law = torch.linalg.matrix_norm(a, ord=2).square()
    torch.testing.assert_close(best, law)
    first = f[..., 0]
    assert (first.real >= 0.0).all()
    torch.testing.assert_close(first.imag, torch.zeros_like(first.imag), rtol=0.0, atol=1e-12)
    torch.testing.assert_close(f.norm(dim=-1), torch.ones(40, 1, dtype=torch.float64))
