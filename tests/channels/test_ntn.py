"""Paths to satellites against link budgets worked by hand, and laws of their draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import stats
from support.made_channels import make_channel
from support.refusals import assert_refused

from otafl.channels.ntn import Ntn, compute_clear_loss_db


def test_free_space_by_hand() -> None:
    """Overhead at 2 GHz: 32.45 + 20 lg 2 + 20 lg 600e3 = 154.03 dB, and gases of 0.0352 dB; TR
    38.821 Table 6.1.3.3-1 has 159.1 dB at 30 degrees and 2 GHz."""
    overhead = Ntn.Settings(elevation_deg=90)
    gases = 0.034 + 0.005 / 3
    assert compute_clear_loss_db(overhead, 8) == pytest.approx(154.0336 + gases, abs=1e-3)
    exact = 20 * math.log10(4 * math.pi * 600e3 * 2e9 / 299_792_458)
    assert compute_clear_loss_db(overhead, 8) - gases == pytest.approx(exact, abs=0.01)
    low = Ntn.Settings(elevation_deg=30)
    assert compute_clear_loss_db(low, 2) - 2 * gases == pytest.approx(159.1, abs=0.05)


def test_scintillation_by_hand() -> None:
    ka = Ntn.Settings(carrier_hz=30e9, elevation_deg=30)
    free = 32.45 + 20 * math.log10(30) + 20 * math.log10(1_075_033.0)
    assert compute_clear_loss_db(ka, 2) == pytest.approx(free + 2 * 0.243 + 0.30, abs=1e-3)
    losses = [
        compute_clear_loss_db(Ntn.Settings(low_latitude=near, altitude_m=altitude), 4)
        for altitude in (600e3, 20e3)
        for near in (False, True)
    ]
    ionosphere = 1.1 * (2 / 4) ** -1.5 / math.sqrt(2)  # 2.2 dB
    assert losses[1] - losses[0] == pytest.approx(ionosphere)
    assert losses[3] == losses[2]


@pytest.mark.law
def test_draws_follow_the_tables() -> None:
    """Urban, S band, 50 degrees: line of sight 0.726, shadow fading 4 and 6 dB, clutter 26.8 dB,
    and a K-factor of N(6.52, 8.27) dB."""
    channel = make_channel("ntn", 500, range(4), environment="urban", seed=7)
    seen = channel.line_of_sight.numpy()
    assert abs(seen.mean() - 0.726) < 4.4 * math.sqrt(0.726 * 0.274 / seen.size)
    rest = channel.loss_db.numpy() - compute_clear_loss_db(channel.settings, 4)
    assert stats.kstest(rest[seen], stats.norm(0, 4).cdf).pvalue > 1e-4
    assert stats.kstest(rest[~seen], stats.norm(26.8, 6).cdf).pvalue > 1e-4
    k_db = 10 * np.log10(channel.k_factor.numpy()[seen])
    assert stats.kstest(k_db, stats.norm(6.52, 8.27).cdf).pvalue > 1e-4
    assert (channel.k_factor.numpy()[~seen] == 0).all()


@pytest.mark.law
def test_fading_has_unit_power_and_its_mean_amplitude() -> None:
    channel = make_channel("ntn", 100, range(2), environment="dense_urban", seed=1)
    h = torch.stack([channel.get_state(round).h for round in range(400)])[..., 0, 0, 0].abs()
    assert float(h.square().mean()) == pytest.approx(1.0, abs=0.02)
    torch.testing.assert_close(h.mean(0), channel.unit_mean_amplitude, rtol=0, atol=0.12)


@pytest.mark.exact
def test_gain_and_normalised_gain() -> None:
    physical, normal = (
        make_channel("ntn", 20, range(2), seed=1, **one) for one in ({}, {"snr_db": 5.0})
    )
    expected = 30.0 - physical.loss_db
    torch.testing.assert_close(10 * physical.get_state(0).gain.log10(), expected)
    gain = normal.get_state(3).gain
    torch.testing.assert_close(gain.mean(1), torch.ones(2, dtype=torch.float64))
    ratio = gain / physical.get_state(0).gain
    torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio))


@pytest.mark.exact
def test_doppler_is_of_satellites_that_move() -> None:
    assert Ntn.Settings(elevation_deg=10).doppler_hz == pytest.approx(45.3e3, abs=300)
    assert Ntn.Settings(altitude_m=20e3).doppler_hz == 0.0
    assert Ntn.Settings(altitude_m=35_786e3).doppler_hz == 0.0


@pytest.mark.exact
def test_settings_that_cannot_be() -> None:
    cases: list[tuple[Any, str]] = [
        ({"path_loss_db": 90}, "path_loss_db: got 90, but ntn has its own"),
        ({"ris": {"elements": 4}}, "ris: the model has no surface"),
        ({"elevation_deg": 5}, "elevation_deg"),
        ({"altitude_m": 1e3}, "altitude_m"),
    ]
    assert_refused(Ntn.Settings, cases, ValidationError)
