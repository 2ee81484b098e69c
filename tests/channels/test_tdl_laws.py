"""Laws of tapped delay lines. Seeds are fixed; every test's false-alarm level over all that it
compares is 1e-4.

Mutations that make a test here fail: the sign of the delays' phase, groups at the edges of their
bands, tap powers for their roots, the line of sight coloured with the antennas' correlation, one
phase for all antennas' taps, the block's time left out.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from support.fading_laws import LEVEL, draws, small
from support.made_channels import made

from otafl.channels.tdl import tdl_profile

pytestmark = pytest.mark.law

make = functools.partial(made, dtype=torch.float32, seed=5)


@pytest.mark.parametrize("letter", "ABCDE")
def test_tdl_frequency_covariance(letter: str) -> None:
    """6,400 draws of 8 groups over 20 MHz, against Sionna's covariance. The variance of a sample
    covariance of normal variables of variance one is 1 / n, and less with a line of sight."""
    from sionna.phy.ofdm import tdl_freq_cov_mat

    h = draws(make(f"tdl-{letter.lower()}", 100, bandwidth_hz=20e6, delay_spread_s=1e-7), 64)
    h = h.reshape(-1, 8)
    known = tdl_freq_cov_mat(letter, 2.5e6, 8, 1e-7, "double", "cpu").numpy()
    assert small(h.T @ h.conj() / len(h) - known, len(h))


@pytest.mark.parametrize("letter", "abc")
@pytest.mark.parametrize("speed", [None, 30.0])
def test_tdl_without_line_of_sight_is_rayleigh(letter: str, speed: float | None) -> None:
    """|h|^2 exponential and the phase uniform (KS) over 2,000 devices; of moving devices it is a
    sum of 20 sinusoids a tap, far closer to normal than 2,000 draws can tell."""
    channel = make(f"tdl-{letter}", 2000, speed_kmh=speed, subcarrier_groups=1)
    h = channel.state(7).h.numpy().ravel()
    assert stats.kstest(np.abs(h) ** 2, "expon").pvalue > LEVEL / 2
    assert stats.kstest(np.angle(h) / (2 * np.pi) + 0.5, "uniform").pvalue > LEVEL / 2
    assert channel.closed_form


@pytest.mark.parametrize(("letter", "k_db"), [("d", 13.3), ("e", 22.0)])
@pytest.mark.parametrize("speed", [None, 30.0])
def test_tdl_line_of_sight_is_rician(letter: str, k_db: float, speed: float | None) -> None:
    """Without delays |h|^2 is Rice's square law (KS, 4,000 draws). The K-factor of the first tap is
    that of TR 38.901 Tables 7.7.2-4 and 5, and that of all follows."""
    profile = tdl_profile(letter.upper())
    assert 10 * math.log10(profile.los_power / profile.power[0]) == pytest.approx(k_db, abs=1e-9)
    k = profile.los_power / float(profile.power.sum())
    settings: dict[str, Any] = {"delay_spread_s": 0.0, "antennas": 2, "antenna_correlation": 0.7}
    channel = make(f"tdl-{letter}", 4000, speed_kmh=speed, subcarrier_groups=1, **settings)
    h = channel.state(3).h.numpy()[0, :, :, 0, 0]
    for antenna in range(2):
        power = np.abs(h[:, antenna]) ** 2 * 2 * (k + 1)
        assert stats.kstest(power, stats.ncx2(2, 2 * k).cdf).pvalue > LEVEL / 2
    assert not channel.closed_form


def test_tdl_antennas_are_correlated() -> None:
    """r^|a-b| of what is scattered; 6,400 draws."""
    h = draws(make("tdl-b", 100, antennas=3, antenna_correlation=0.6, subcarrier_groups=1), 64)
    h = h.reshape(-1, 3)
    known = 0.6 ** np.abs(np.arange(3)[:, None] - np.arange(3))
    assert small(h.T @ h.conj() / len(h) - known, len(h))


@pytest.mark.parametrize("letter", ["a", "d"])
def test_tdl_time_correlation_is_jakes(letter: str) -> None:
    """Rounds 10 ms apart and blocks 1 ms apart at 10 km/h and 3.5 GHz: P J0(2 pi f_D tau) and the
    line of sight's turning phase, over 3,000 devices."""
    f_d = 10 / 3.6 * 3.5e9 / 299_792_458
    settings: dict[str, Any] = {"round_interval_s": 0.01, "block_symbols": 1000}
    channel = make(f"tdl-{letter}", 3000, speed_kmh=10.0, subcarrier_groups=1, **settings)
    profile = tdl_profile(letter.upper())
    start = channel.state(0).over(6000)[0, :, 0, :, 0].numpy()
    tau = [0.001 * block for block in range(6)] + [0.01 * round for round in (1, 2, 3)]
    rounds = [channel.state(round).h[0, :, 0, 0].numpy() for round in (1, 2, 3)]
    h = np.concatenate([start, *rounds], 1)
    for lag, column in zip(tau, h.T, strict=True):
        known = float(profile.power.sum()) * special.j0(2 * np.pi * f_d * lag)
        known += profile.los_power * np.exp(2j * np.pi * 0.7 * f_d * lag)
        assert small((column * start[:, 0].conj()).mean() - known, 3000, len(tau))
