"""Uniform forcing against random combiners, the eigenvector, and by hand.

A mutation that makes a test here fail: a device without a channel for the weakest.
"""

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


def test_uniform_forcing_with_more_antennas_than_devices() -> None:
    """As with antennas that no device reaches beside theirs, in other coordinates."""
    few, budget = channels(devices=4), torch.ones(40, 4, dtype=torch.float64)
    sends = torch.ones(40, 4, dtype=torch.bool)
    turn = torch.linalg.qr(channels(1, 12, 12, seed=2)[0, 0]).Q
    many = torch.nn.functional.pad(few, (0, 8)) @ turn.mT
    law = weakest(few, UniformForcing().combine(few, sends, budget), budget)
    ours = UniformForcing().combine(many, sends, budget)
    assert ours.shape == (40, 1, 12)
    torch.testing.assert_close(weakest(many, ours, budget), law, rtol=1e-6, atol=0.0)


def test_uniform_forcing_leaves_out_who_has_no_channel() -> None:
    """As if it did not send: the weakest of the others decides."""
    h, budget = channels(), torch.ones(40, 8, dtype=torch.float64)
    h[:, :, 3] *= 1e-9
    sends = torch.ones(40, 8, dtype=torch.bool)
    ours = UniformForcing().combine(h, sends, budget)
    sends[:, 3] = False
    assert torch.equal(ours, UniformForcing().combine(h, sends, budget))
    others = [k for k in range(8) if k != 3]
    sent = torch.ones(40, 7, dtype=torch.bool)
    start = Eigen().combine(h[:, :, others], sent, budget[:, others])
    ours, start = (weakest(h[:, :, others], f, budget[:, others]) for f in (ours, start))
    assert (ours >= 0.999 * start).all()
