"""Laws of fading by its angles, of reflecting surfaces, and of averages over fading."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from support.closed_forms import holds

from otafl.channels.cdl import build_cdl_rays, read_cdl_profile
from otafl.channels.fading import FADING
from otafl.channels.rayleigh import build_fading
from otafl.csi.long_term import compute_statistics
from otafl.receivers.base import Scalar
from otafl.validation.bench import Bench
from otafl.validation.channels import MOVING, doppler_turns, draw_fading, jakes
from otafl.validation.checks import Check, check_distribution, check_mean

pytestmark = pytest.mark.law


@holds()
def test_a_line_of_sight_comes_from_any_angle(bench: Bench) -> Iterator[Check]:
    """The phase step between antennas half a wavelength apart is pi sin(arrival)."""
    h = draw_fading(bench, 50, 25, 1, "rician", k_factor_db=200.0, antennas=2)[0]
    slope = np.angle(h[:, :, 1] / h[:, :, 0]) / np.pi
    yield check_distribution((1.0 + slope) / 2.0, stats.arcsine.cdf)


@holds()
def test_a_line_of_sight_of_taps_has_its_own_doppler_shift(bench: Bench) -> Iterator[Check]:
    """P exp(2 pi j 0.7 f_D tau) of the line of sight, and Jakes' J0 of the rest, TR 38.901, 7.7.2.

    The first tap of TDL-D has a K-factor of 13.3 dB, and other taps have 0.033 of its power.
    """
    from sionna.phy.channel.tr38901 import TDL

    part = float(TDL("D", 1.0, MOVING["carrier_hz"], precision="double").mean_power_los)
    h = draw_fading(bench, 32, bench.scale_size(64), 4, "tdl-d", subcarrier_groups=1, **MOVING)
    for lag in (1, 3):
        law = part * np.exp(1.4j * math.pi * doppler_turns(lag)) + (1.0 - part) * jakes(lag)
        product = (h[lag] * h[0].conj())[..., 0, 0, 0]
        yield check_mean(float(law.real), product.real, f"{lag} ms, real")
        yield check_mean(float(law.imag), product.imag, f"{lag} ms, imaginary")


def test_bearings_turn_the_rays_of_a_device_to_both_sides() -> None:
    bearing = torch.tensor([[0.0, 0.4, -0.4]], dtype=torch.float64)
    profile = read_cdl_profile("E")
    clusters = profile.angles.shape[1]
    coupling = torch.arange(20).expand(1, 3, 4, clusters, 20)
    spread = torch.full((1,), 1e-7, dtype=torch.float64)
    azimuth = build_cdl_rays(profile, coupling, bearing, spread).azimuth[0]
    torch.testing.assert_close(azimuth[0] - azimuth[1], torch.full_like(azimuth[0], 0.4))
    torch.testing.assert_close(azimuth[0] - azimuth[2], torch.full_like(azimuth[0], -0.4))


def draw_reflected(**fading: Any) -> torch.Tensor:
    """Fading [S, K, A, 1, 1] by way of a surface with random phases."""
    surface = {"elements": 16, "reflected_db": -10.0, "blocked": 0.36, "rule": "random"}
    channel = {"name": "rayleigh", "antennas": 1, "ris": surface} | fading
    rig = Bench().build_rig(4, 2, {"channel": channel, "power": "full"})
    return rig.link.channel.get_state(0).h


def test_a_correlation_of_antennas_is_not_one_of_elements() -> None:
    one, other = draw_reflected(), draw_reflected(antenna_correlation=0.9)
    torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)


def test_a_surface_has_a_path_of_its_own() -> None:
    rig = Bench().build_rig(4, 2, {"channel": "rayleigh", "power": "full"})
    direct = build_fading(rig.link.channel).draw(0, 1)
    reflected = build_fading(rig.link.channel, 1, FADING / "ris").draw(0, 1)
    assert not torch.isclose(direct, reflected).any()


LEAST = 0.15


@holds((0.0, 0.2))
def test_averages_over_fading_and_errors_of_estimates(
    bench: Bench, variance: float
) -> Iterator[Check]:
    """E Re(h exp(-j arg h_hat)), E[1/|h_hat|^2; |h_hat|^2 >= g] and two shares of |h_hat|^2 >= g,
    of devices at 3 dB of path loss."""
    csi: Any = {"name": "error", "variance": variance} if variance else "perfect"
    channel = {"name": "rayleigh", "path_loss_db": 3.0}
    rig = bench.build_rig(32, 64, {"channel": channel, "csi": csi, "power": "full"})
    link, noise = rig.link, torch.ones(rig.num_trials).to(rig.cohort.weight)
    known = compute_statistics(link.channel, link.csi, Scalar(), link.budget, noise)
    state = link.channel.get_state(0)
    estimate = link.csi.estimate(state.h, state.gain, 0)
    root = state.gain.sqrt().numpy()
    h, h_hat = (root * one[:, :, 0, 0, 0].numpy() for one in (state.h, estimate))
    power, least = np.abs(h_hat) ** 2, torch.full_like(noise, LEAST)
    above = power >= LEAST
    pairs = {
        "mean amplitude": (known.mean_amplitude(), (h * np.exp(-1j * np.angle(h_hat))).real),
        "mean inverse": (known.mean_inverse(least), np.where(above, 1.0 / power, 0.0)),
        "share above": (known.prob_gain_above(least[:, None].expand(-1, 32)), above),
        "share of units above": (known.prob_unit_gain_above(least), power / root**2 >= LEAST),
    }
    for case, (law, found) in pairs.items():
        yield check_mean(float(law.mean()), found, case)
