"""Ideal gains.

Mutations that make a test here fail: scaled by the weakest, the symbol power missing.
"""

from __future__ import annotations

import pytest
import torch
from support.power_links import arrived, make_link, policy_of, solve

pytestmark = pytest.mark.exact


def test_none_arrives_without_distortion_at_the_mean_noise() -> None:
    link = make_link(1)
    got = solve(policy_of("none"), link)
    assert policy_of("none").keeps == "none"
    there = link.sends[:, None]
    torch.testing.assert_close(arrived(link, got), there.double().expand(-1, 2, -1))
    received = (link.budget[:, None] * link.h.abs().square() * there).sum(-1)
    torch.testing.assert_close(got.eta, received / (link.power * there).sum(-1))
