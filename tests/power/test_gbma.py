"""Equal power and pre-compensated phases."""

from __future__ import annotations

import math

import pytest
import torch
from support.power_links import make_link, make_policy, solve

import otafl
from otafl.core.errors import UserError

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(("target", "linear"), [("amplitude", False), ("energy", True)])
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


def delayed(devices: int, trial: int = 0, **channel: float) -> otafl.WirelessUplink:
    """Uplink whose devices know the channel of the round before."""
    fading = {"name": "rayleigh", **channel}
    return otafl.WirelessUplink(devices, channel=fading, csi="delay", snr_db=20.0, trial=trial)


def test_estimates_without_the_phase_are_refused() -> None:
    with pytest.raises(UserError, match=r"power: 'gbma' .* got 0\.0.*channel\.speed_kmh"):
        delayed(4)(0, torch.ones(4, 5))
