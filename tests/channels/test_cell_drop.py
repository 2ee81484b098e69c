"""Sionna's drops against hand-worked path losses and its own channel, and devices that move."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.made_channels import make_pairs
from torch import Tensor

from otafl.channels.cell import Cell
from otafl.channels.cell_drop import SionnaCell, build_cell_rays, draw_positions, reflect_at_circle
from otafl.channels.fading import use_sionna_stream
from otafl.channels.ofdm import frequency_response, group_frequencies
from otafl.channels.plane_waves import PlaneWaves
from otafl.core.rng import Streams

CPU = torch.device("cpu")


@pytest.mark.exact
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("umi", {}),
        ("uma", {"blockage": "A", "spec_version": "16.1"}),
        ("rma", {}),
        ("inh", {"blockage": "A", "self_blocking": "landscape", "blockers": 3}),
        ("inf", {"blockage": "B", "factory_scenario": "DH", "screen_m": (8.0, 9.0)}),
    ],
)
def test_the_channel_is_sionnas(name: str, keys: dict[str, Any]) -> None:
    """Sionna's cells for a drop of 64 devices, some in each state, with the phases that it draws:
    the same gains and frequency responses, over time, to rounding."""
    from sionna.phy.channel import cir_to_ofdm_channel, tr38901

    own = Cell.Settings(name=name, **keys).filled
    outdoors = own.hall_m is None
    radius = own.cell_radius_m or 25.0
    position, indoor = draw_positions(
        make_pairs(1, 64), own.min_distance_m, radius, own.device_height_m, 0.4 if outdoors else 1.0
    )
    place: dict[str, Any] = {"precision": "double", "device": "cpu"}
    server = tr38901.PanelArray(1, 3, "single", "V", "omni", 3.5e9, **place)
    device = tr38901.PanelArray(1, 1, "single", "V", "omni", 3.5e9, **place)
    common = {"ut_array": device, "bs_array": server, "direction": "uplink", **place}
    common |= {"spec_version": own.spec_version, "enable_blockage": own.blockage != "none"}
    screens = torch.empty(0, 3)
    if own.blockage == "A":
        common["blockage_self_blocking"] = own.self_blocking
        common["blockage_num_non_self_blockers"] = own.blockers
    elif own.blockage == "B":
        screens = torch.tensor([[2.0, 3.0, 0.85], [-9.0, 1.0, 0.85]], dtype=torch.float64)
        size = torch.tensor(own.screen_m, dtype=torch.float64)[:, None].expand(2, 2)
        common |= {"blockage_screen_centers": screens, "blockage_screen_widths": size[0]}
        common["blockage_screen_heights"] = size[1]
    sionna = {
        "umi": lambda: tr38901.UMi(3.5e9, "low", **common),
        "uma": lambda: tr38901.UMa(3.5e9, "low", **common),
        "rma": lambda: tr38901.RMa(3.5e9, **common),
        "inh": lambda: tr38901.InH(3.5e9, indoor_scenario="open", **common),
        "inf": lambda: tr38901.InF(3.5e9, factory_scenario=own.factory_scenario, **common),
    }[name]()
    sionna.return_rays = True
    drawn: list[Tensor] = []
    step_10 = sionna._cir_sampler._step_10

    def kept(shape: Any) -> Tensor:
        drawn.append(step_10(shape))
        return drawn[-1]

    sionna._cir_sampler._step_10 = kept
    speed = 10 * torch.tensor([0.6, 0.8, 0.0], dtype=torch.float64).expand(1, 64, 3)
    frequency = group_frequencies(torch.tensor([2e7]), 5)
    placing = SionnaCell(own)
    placing.scenario = sionna
    with use_sionna_stream(9, CPU):
        placing._place(position, indoor, "random")
        sionna.set_topology(ut_velocities=speed)
        a, tau, rays = sionna(3, 100.0)
    theirs = cir_to_ofdm_channel(frequency[0], a, tau)[0, 0, :, :, 0]  # [A, K, time, F]

    again = SionnaCell(own)
    links = again.draw_batch(9, position, indoor, screens)
    assert len(torch.unique(2 * links.line_of_sight + indoor)) == (3 if outdoors else 2)
    before = rays.powers[:, :, 0]
    if own.blockage != "none":
        assert links.penetration_db[~indoor if outdoors else indoor].max() > 0.5
    if rays.blockage_loss_applied_to_powers:
        before = before * 10 ** (rays.blockage_loss_db[:, :, 0, ..., 0] / 10)
    links = replace(links, power=links.power * before.sum(-1, keepdim=True))
    # rays in the order of their clusters, then as step 11 regroups them; the same for the phases
    as_rays = replace(
        links, angles=drawn[0][:, :, 0, ..., :1].movedim(-1, 2).expand_as(links.angles)
    )
    phase = build_cell_rays(as_rays).azimuth.clone()
    phase[..., -1] = -2 * math.pi * again.scenario.distance_3d[:, 0] * 3.5e9 / 299_792_458
    once = SimpleNamespace(
        streams=Streams([0], [0], dtype=torch.float64),
        draw_static_uniform=lambda purpose, shape: phase / (2 * math.pi),
    )
    waves = PlaneWaves(build_cell_rays(links), 3, frequency, once, 3.5e9)  # type: ignore[arg-type]
    time = torch.arange(3, dtype=torch.float64) / 100
    taps = waves.compute_moved_taps(time[:, None, None, None] * speed)
    ours = frequency_response(taps, waves.rotation)[:, 0].permute(2, 1, 0, 3)
    level = links.shadowing_db - links.path_loss_db - links.penetration_db
    gain = 10 ** (level[0] / 20)
    torch.testing.assert_close(ours, theirs / gain[:, None, None], rtol=0, atol=1e-9)


@pytest.mark.twin
def test_reflection_is_that_of_small_steps() -> None:
    """A plain loop of bounces, from wall to wall, for 20 devices."""
    rng = np.random.default_rng(0)
    radius = 50.0
    start = np.stack([rng.uniform(-30, 30, 20), rng.uniform(-30, 30, 20), np.full(20, 1.5)], 1)
    velocity = np.concatenate([rng.normal(0, 3, (20, 2)), np.zeros((20, 1))], 1)
    times = [0.0, 0.3, 7.0, 40.0, 1000.0]
    time = torch.tensor(times, dtype=torch.float64)[:, None]
    found = reflect_at_circle(
        torch.from_numpy(start)[None], torch.from_numpy(velocity)[None], radius, time
    )
    for device in range(20):
        for row, left in enumerate(times):
            x, v = start[device, :2].copy(), velocity[device, :2].copy()
            while True:
                square, along = v @ v, x @ v
                root = math.sqrt(along**2 - square * (x @ x - radius**2))
                hit = (-along + root) / square
                if hit >= left:
                    x = x + left * v
                    break
                x, left = x + hit * v, left - hit
                normal = x / math.sqrt(x @ x)
                v = v - 2 * (v @ normal) * normal
                x = normal * radius * (1 - 1e-15)
            assert found[row, 0, device, :2].numpy() == pytest.approx(x, abs=1e-6)
    assert (found[..., 2] == 1.5).all()
