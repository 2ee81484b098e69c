"""Equal power and pre-compensated phases."""

from __future__ import annotations

import math

import pytest
import torch
from support.power_links import make_link, make_policy, solve

pytestmark = pytest.mark.exact


def test_gbma_pre_compensates_the_phase_only() -> None:
    link = make_link(5)
    got = solve(make_policy("gbma"), link)
    arrives = link.h * got.p
    assert arrives.imag.abs().max() < 1e-12
    amplitude = got.p.abs().where(got.active_mask, torch.nan)
    torch.testing.assert_close(
        amplitude.nanmean(-1, keepdim=True).expand_as(amplitude)[got.active_mask],
        amplitude[got.active_mask],
    )


@pytest.mark.parametrize("target", ["amplitude", "energy"])
@pytest.mark.parametrize("linear", [True, False])
def test_gbma_targets(target: str, linear: bool) -> None:
    """A target that is set overrules the payload's kind; amplitude and energy differ by pi / 4."""
    link = make_link(6, linear)
    got = solve(make_policy("gbma", gain_target=target), link)
    bound = torch.where(
        link.transmit_mask[:, None], link.budget[:, None] / link.symbol_power, math.inf
    )
    energy = bound.amin(-1)
    factor = math.pi / 4 if target == "amplitude" else 1.0
    torch.testing.assert_close(got.eta, energy * link.gain[:, :1] * factor)
