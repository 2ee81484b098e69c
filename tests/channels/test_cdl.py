"""Clustered delay lines against Sionna's, and laws of theirs. Seeds are fixed; a statistical test's
false-alarm level over all that it compares is 1e-4.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from otafl.channels.cdl import build_cdl_rays, read_cdl_profile
from otafl.channels.fading import use_sionna_stream
from otafl.channels.ofdm import frequency_response, group_frequencies
from otafl.channels.plane_waves import PlaneWaves
from otafl.core.rng import Streams

CPU = torch.device("cpu")


class Phases:
    """Stands for `Pairs` with given phases, in radians."""

    def __init__(self, phase: Tensor) -> None:
        self.streams = Streams([0], [0], dtype=torch.float64)
        self._phase = phase

    def draw_static_uniform(self, purpose: str, shape: tuple[int, ...]) -> Tensor:
        return self._phase / (2 * math.pi)


@pytest.mark.exact
@pytest.mark.parametrize("letter", "AE")
def test_cdl_is_sionnas(letter: str) -> None:
    """Sionna's CDL for one device at a bearing of 0.4, three antennas, at four times, with the
    phases and couplings that it draws: the same frequency responses to rounding."""
    from sionna.phy.channel import cir_to_ofdm_channel
    from sionna.phy.channel.tr38901 import CDL, PanelArray

    place: dict[str, Any] = {"precision": "double", "device": "cpu"}
    server = PanelArray(1, 3, "single", "V", "omni", 3.5e9, **place)
    device = PanelArray(1, 1, "single", "V", "omni", 3.5e9, **place)
    velocity = torch.tensor([3.0, -2.0, 0.5], dtype=torch.float64)
    sionna = CDL(
        letter,
        3e-7,
        3.5e9,
        device,
        server,
        "uplink",
        bs_orientation=[0.4, 0.0, 0.0],
        ut_velocity=velocity,
        **place,
    )
    orders: list[Tensor] = []
    shuffle, step_10 = sionna._shuffle_angles, sionna._cir_gen._step_10
    drawn: list[Tensor] = []

    def recorded(angles: Tensor) -> Tensor:
        places = torch.arange(20, dtype=torch.float64).expand(angles.shape)
        orders.append(shuffle(places).long())
        return torch.gather(angles, -1, orders[-1])

    def kept(shape: Any) -> Tensor:
        drawn.append(step_10(shape))
        return drawn[-1]

    sionna._shuffle_angles, sionna._cir_gen._step_10 = recorded, kept
    frequency = group_frequencies(torch.tensor([2e7]), 6)
    with use_sionna_stream(1, CPU):
        a, tau = sionna(1, 4, 50.0)
    theirs = cir_to_ofdm_channel(frequency[0], a, tau)[0, 0, :, 0, 0]  # [A, time, F]

    profile = read_cdl_profile(letter)
    order = [orders[place] for place in (0, 2, 1, 3)]  # azimuth, zenith of arrival, of departure
    coupling = torch.stack(order, 2)[:, :, :, 0]
    bearing = torch.full((1, 1), 0.4, dtype=torch.float64)
    rays = build_cdl_rays(profile, coupling, bearing, torch.tensor([3e-7], dtype=torch.float64))
    phase = drawn[0][0, 0, 0, ..., 0].reshape(1, 1, -1)
    if profile.los_power:
        phase = torch.cat([phase, torch.zeros(1, 1, 1)], -1)
    waves = PlaneWaves(rays, 3, frequency, Phases(phase), 3.5e9)  # type: ignore[arg-type]
    time = torch.arange(4, dtype=torch.float64) / 50
    taps = waves.compute_moved_taps((time[:, None] * velocity).view(4, 1, 1, 3))
    ours = frequency_response(taps, waves.rotation)[:, 0, 0]
    torch.testing.assert_close(ours.transpose(0, 1), theirs, rtol=0, atol=1e-9)
