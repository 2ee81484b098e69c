"""Sinusoids of moving taps against Sionna's."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from otafl.channels.fading import use_sionna_stream
from otafl.channels.ofdm import rotations
from otafl.channels.tdl import arrival_cosines, read_tdl_profile, sum_of_sinusoids

pytestmark = pytest.mark.exact

CPU = torch.device("cpu")


@pytest.mark.parametrize("letter", "AD")
def test_sum_of_sinusoids_is_sionnas(letter: str) -> None:
    """Sionna's TDL with the draws that it makes, at its sample times: the same taps to rounding."""
    from sionna.phy import config
    from sionna.phy.channel.tr38901 import TDL

    sionna = TDL(letter, 1.0, 3.5e9, min_speed=8.0, num_rx_ant=2, precision="double", device="cpu")
    with use_sionna_stream(3, CPU):
        h, _ = sionna(4, 5, 100.0)
    taps = h.shape[5]
    with use_sionna_stream(3, CPU):

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, dtype=torch.float64, generator=config.torch_rng("cpu"))

        uniform(4, 1, 1, 1, 1, 1, 1, 1)
        spread = (2 * uniform(4, 1, 1, 1, 1, taps, 1, 20) - 1) * math.pi / 20
        phase = uniform(4, 1, 2, 1, 1, taps, 1, 20) - 0.5
        first = uniform(4, 1, 1, 1, 1, 1, 1).flatten() - 0.5
    cycles = torch.arange(5, dtype=torch.float64)[:, None] / 100 * 8.0 * 3.5e9 / 299_792_458
    start = rotations(phase.view(1, 4, 2, taps, 20), torch.float64)
    ours = sum_of_sinusoids(cycles, arrival_cosines(spread.view(1, 4, taps, 20)), start)
    profile = read_tdl_profile(letter)
    ours = ours * profile.power.sqrt()
    turn = torch.polar(torch.ones(5, 4).double(), 2 * math.pi * (first + 0.7 * cycles))
    ours[:, 0, :, :, 0] += math.sqrt(profile.los_power) * turn[:, :, None]
    theirs = h[:, 0, :, 0, 0].permute(3, 0, 1, 2)
    torch.testing.assert_close(ours[:, 0], theirs, rtol=0, atol=1e-9)
