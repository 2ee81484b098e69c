"""Ideal gains."""

from __future__ import annotations

import pytest
import torch
from support.power_links import compute_received_gain, make_link, make_policy, solve

pytestmark = pytest.mark.exact


def test_none_arrives_without_distortion_at_the_mean_noise() -> None:
    link = make_link(1)
    got = solve(make_policy("genie"), link)
    assert make_policy("genie").power_constraint == "none"
    there = link.transmit_mask[:, None]
    torch.testing.assert_close(compute_received_gain(link, got), there.double().expand(-1, 2, -1))
    received = (link.budget[:, None] * link.h.abs().square() * there).sum(-1)
    torch.testing.assert_close(got.eta, received / (link.symbol_power * there).sum(-1))
