"""Moving devices against a looped twin, by hand and by numerical search."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import special
from support.made_channels import FAR, MOVING, make_channel, take_blocks

from otafl.channels.jakes import (
    MAX_CORRELATED_ROUNDS,
    SINUSOIDS,
    count_correlation_rounds,
    doppler_hz,
)
from otafl.channels.rayleigh import Rayleigh
from otafl.core.rng import Streams


def turned(hz: float, round: int, block: int) -> float:
    """2 pi f t, in exact arithmetic up to the turn: the frequencies are those of double numbers."""
    turns = Fraction(hz * 0.7) * round + Fraction(hz * (500 / 2e5)) * block
    return 2 * math.pi * float(turns % 1)


@pytest.mark.twin
@pytest.mark.parametrize("round", [1, 12345, FAR])
def test_moving_devices_are_a_sum_of_sinusoids(round: int) -> None:
    """The sum of Xiao, Zheng and Beaulieu, looped; antennas by their recursion."""
    streams = Streams([0, 0], [0, 1], dtype=torch.float64)
    pair = torch.arange(4)
    draw = streams.draw_device_uniform("fading/scatterers", 0, pair // 2, pair % 2, (SINUSOIDS, 4))
    doppler = 20.0 / 3.6 * 2.4e9 / 299_792_458.0
    keys = {**MOVING, "antennas": 3, "antenna_correlation": 0.6}
    got = take_blocks(make_channel("rayleigh", 2, (0, 1), **keys).get_state(round), 3)
    for cell, numbers in enumerate(draw.tolist()):
        for block in range(3):
            h = np.zeros(3, dtype=complex)
            for n, (turn, *phases) in enumerate(numbers):
                arrival = torch.tensor(2 * math.pi * (n + turn) / SINUSOIDS, dtype=torch.float64)
                angle = turned(doppler * arrival.cos().item(), round, block)
                h += np.exp(1j * (angle + 2 * np.pi * np.array(phases))) / math.sqrt(SINUSOIDS)
            for a in (1, 2):
                h[a] = 0.6 * h[a - 1] + 0.8 * h[a]
            bound = 1e-9 if round < FAR else 1e-2  # an ulp of cos alpha, 2^40 rounds later
            assert np.abs(got[cell // 2, cell % 2, :, block].numpy() - h).max() < bound


@pytest.mark.exact
@pytest.mark.parametrize("phase", [0.01, 5.0])
def test_rounds_apart_are_as_good_as_independent(phase: float) -> None:
    """|J0| < 0.1 from there on, and not within half of that."""
    speed = phase / (2 * math.pi) / doppler_hz(1.0, 3.5e9)
    rounds = count_correlation_rounds(Rayleigh.Settings(speed_kmh=speed))
    here = np.linspace(rounds, 3 * rounds, 20_000) * phase
    assert np.abs(special.j0(here)).max() < 0.1
    before = np.linspace(rounds / 2, rounds, 20_000) * phase
    assert np.abs(special.j0(before)).max() > 0.1
    assert make_channel("rayleigh", 3).correlation_rounds == 1
    still = make_channel("rayleigh", 3, speed_kmh=0.05, round_interval_s=1e-6).correlation_rounds
    assert still == MAX_CORRELATED_ROUNDS
