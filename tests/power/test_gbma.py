"""Equal power and pre-compensated phases."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import j0
from support.power_links import make_link, make_policy, solve

import otafl
from otafl.channels.jakes import doppler_hz
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


def test_delayed_phases() -> None:
    """With the correlation rho = 0.91, the gain Re(h exp(-j angle h_hat)) has the mean square
    rho^2 + (1 - rho^2) / 2. The mean over 40 rounds of ten devices is within 25 %, three standard
    deviations."""
    devices, speed_kmh, carrier_hz, interval_s = 10, 3.0, 3.5e9, 0.01
    rho = float(j0(2.0 * math.pi * doppler_hz(speed_kmh, carrier_hz) * interval_s))
    gain = abs(rho) * math.sqrt(math.pi) / 2.0
    variance = (rho**2 + (1.0 - rho**2) / 2.0) / gain**2 - 1.0
    law = variance + 0.5 / (100.0 * gain**2) / devices
    x = torch.randn(devices, 200, generator=torch.Generator().manual_seed(0))
    errors = [
        uplink(round, x)[1].nmse
        for trial in range(5)
        for uplink in [delayed(devices, trial, speed_kmh=speed_kmh, round_interval_s=interval_s)]
        for round in range(8)
    ]
    assert np.mean(errors) == pytest.approx(law, rel=0.25)


def test_estimates_without_the_phase_are_refused() -> None:
    with pytest.raises(UserError, match=r"power: 'gbma' .* got 0\.0.*channel\.speed_kmh"):
        delayed(4)(0, torch.ones(4, 5))
