"""Truncated channel inversion: who is silent, and what settings do not go together."""

from __future__ import annotations

import math

import pytest
import torch
from support.power_links import HYPER, make_link, make_policy, perturb, solve

pytestmark = pytest.mark.exact


def test_tci_silence_and_peak_power() -> None:
    """Devices below the threshold are silent, those just above it are above their budget on
    average constraints, and at it under a peak constraint."""
    link = make_link(8, spread=False)
    link = perturb(link, budget=link.budget[:, :1].expand_as(link.budget))
    weak = torch.full_like(link.h, math.sqrt(HYPER["threshold"]) * 1.0001j)
    weak[..., 0] *= 0.999
    for constraint, least, most in (("average", 1.2, math.inf), ("peak", 0.999, 1.0)):
        policy = make_policy("tci", constraint=constraint, relative=False)
        got = solve(policy, perturb(link, h=weak))
        assert not got.active_mask[..., 0].any()
        used = (got.p.abs().square() / link.budget[:, None])[got.active_mask]
        assert ((used > least) & (used <= most)).all()


def test_tci_peak_refuses_averages() -> None:
    with pytest.raises(ValueError, match="constraint: peak bounds each device"):
        make_policy("tci", constraint="peak", reference="mean")
