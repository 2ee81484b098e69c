"""Cells of 3GPP TR 38.901 against hand-worked path losses, Sionna's own channel and plain loops.
Statistical tests have a false-alarm level of 1e-4, seeds fixed.

Mutations that make a test here fail: the gain's sign, penetration loss or shadowing left out or
twice, decibels as amplitudes, a gain over the mean of all trials, the mean of a physical trial
taken out, distance for its square in the drop, two-dimensional for three-dimensional distance, a
line of sight of the wrong power or delay, clusters split without being the strongest, sub-clusters'
delays without the cluster spread, angles of the device at the server, reflection at the wrong side
or with the wrong angle, a chord forgotten, path loss or shadowing that does not move, shadowing
that forgets its start or whose correlation has another distance.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from otafl.channels.cell import Cell, ShadowingField
from otafl.channels.cell_drop import (
    cell_rays,
    drop_batch,
    drop_cell,
    scenario,
    set_topology,
)
from otafl.channels.config_3gpp import CellConfig
from otafl.channels.fading import link_budget
from otafl.channels.ofdm import Pairs, group_frequencies
from otafl.channels.plane_waves import PlaneWaves
from otafl.channels.sionna_rng import sionna_stream
from otafl.channels.topology import drop, reflected
from otafl.core import registry
from otafl.core.rng import Streams

LEVEL = 1e-4
CPU = torch.device("cpu")
CELLS = ["umi", "uma", "rma"]


def config(name: str, **settings: Any) -> CellConfig:
    made: CellConfig = registry.settings("channel", name)(**settings)
    return made


def cell(name: str, devices: int, trials: int = 1, **settings: Any) -> Cell:
    section = config(name, **settings)
    streams = Streams([3] * trials, range(trials), dtype=torch.float64)
    budget = link_budget([section] * trials, devices, streams.device, streams.dtype)
    return Cell(section, budget, devices, streams)


def pairs(trials: int, devices: int) -> Pairs:
    streams = Streams([3] * trials, range(trials), dtype=torch.float64)
    return Pairs(streams, devices, torch.ones(trials))


def db(gain: Tensor) -> Tensor:
    return 10 * gain.log10()


# Path loss of TR 38.901 Table 7.4.1-1, before the break point, with the antennas' default heights.


def umi(d: float, ghz: float) -> tuple[float, float]:
    los = 32.4 + 21 * math.log10(d) + 20 * math.log10(ghz)
    return los, max(los, 35.3 * math.log10(d) + 22.4 + 21.3 * math.log10(ghz))


def uma(d: float, ghz: float) -> tuple[float, float]:
    los = 28 + 22 * math.log10(d) + 20 * math.log10(ghz)
    return los, max(los, 13.54 + 39.08 * math.log10(d) + 20 * math.log10(ghz))


def rma(d: float, ghz: float) -> tuple[float, float]:
    h, w, server, device = 5.0, 20.0, 35.0, 1.5
    los = 20 * math.log10(40 * math.pi * d * ghz / 3) + min(0.03 * h**1.72, 10) * math.log10(d)
    los += -min(0.044 * h**1.72, 14.77) + 0.002 * math.log10(h) * d
    nlos = 161.04 - 7.1 * math.log10(w) + 7.5 * math.log10(h)
    nlos -= (24.37 - 3.7 * (h / server) ** 2) * math.log10(server)
    nlos += (43.42 - 3.1 * math.log10(server)) * (math.log10(d) - 3) + 20 * math.log10(ghz)
    nlos -= 3.2 * math.log10(11.75 * device) ** 2 - 4.97
    return los, max(los, nlos)


def test_umi_path_loss_at_100_m_by_hand() -> None:
    """sqrt(100^2 + 8.5^2) = 100.3606 m: 32.4 + 21 * 2.0015635 + 20 * 0.5440680 = 85.3142 dB, and
    without line of sight 35.3 * 2.0015635 + 22.4 + 21.3 * 0.5440680 = 104.6438 dB."""
    position = torch.tensor([100.0, 0.0, 1.5], dtype=torch.float64).expand(1, 64, 3)
    links = drop_cell(config("umi"), pairs(1, 64), position, torch.zeros(1, 64, dtype=torch.bool))
    los = links.line_of_sight
    assert 0 < los.sum() < 64
    assert links.path_loss_db[los].numpy() == pytest.approx(85.3142, abs=1e-4)
    assert links.path_loss_db[~los].numpy() == pytest.approx(104.6438, abs=1e-4)
    assert not links.penetration_db.any()


@pytest.mark.parametrize(("name", "formula"), [("umi", umi), ("uma", uma), ("rma", rma)])
@pytest.mark.parametrize("speed", [None, 3.0])
def test_gain_outdoors_is_the_formulas(name: str, formula: Any, speed: float | None) -> None:
    """Without shadowing, cars and houses, by position and line of sight; of walking devices too,
    after 0 and 20 seconds. It falls with the distance."""
    settings: dict[str, Any] = {"in_car": False} if name == "rma" else {}
    if speed is not None:
        settings |= {"speed_kmh": speed, "mobility": "linear"}
    channel = cell(name, 40, 2, shadowing=False, indoor_probability=0.0, **settings)
    server = torch.tensor([0.0, 0.0, config(name).server_height_m], dtype=torch.float64)
    for round in (0, 20):
        distance = (channel.positions_in(round) - server).norm(dim=-1)
        assert distance.max() < {"umi": 210, "uma": 670, "rma": 3850}[name]  # the break points
        gain = channel.state(round).gain
        kinds = channel.line_of_sight.int()
        expected = [
            -formula(d, 3.5)[1 - los]
            for d, los in zip(distance.flatten().tolist(), kinds.flatten().tolist(), strict=True)
        ]
        assert db(gain).flatten().numpy() == pytest.approx(expected, abs=1e-9)
        for kind in (0, 1):
            order = distance[kinds == kind].argsort()
            assert (gain[kinds == kind][order].diff() < 0).all()
    assert torch.equal(channel.positions_in(0), channel.positions)
    assert torch.equal(channel.distance_m, (channel.positions - server).norm(dim=-1))


def test_houses_and_cars() -> None:
    """Below 6 GHz, a house takes 20 dB and 0.5 dB for each of up to 25 metres inside; a car N(9 dB,
    5 dB), a KS test over 128 of them."""
    channel = cell("umi", 128, shadowing=False, indoor_probability=0.5)
    loss = channel.links.penetration_db[0]
    inside = channel.indoor[0]
    assert 40 < inside.sum() < 88
    assert not loss[~inside].any()
    assert stats.kstest((loss[inside] - 20) / 12.5, "uniform").pvalue > LEVEL
    outdoors = db(channel.state(0).gain)[0] + channel.links.path_loss_db[0]
    torch.testing.assert_close(outdoors, -loss, rtol=0, atol=1e-9)
    rural = cell("rma", 128, shadowing=False, indoor_probability=0.0)
    assert stats.kstest((rural.links.penetration_db[0] - 9) / 5, "norm").pvalue > LEVEL


def test_shadowing_is_lognormal() -> None:
    """First devices of 100 trials, 4 dB in line of sight and 7.82 dB without (UMi): KS."""
    channel = cell("umi", 1, 100, indoor_probability=0.0)
    links = channel.links
    shadowing = db(channel.state(0).gain) + links.path_loss_db
    std = torch.where(channel.line_of_sight, 4.0, 7.82)
    assert stats.kstest((shadowing / std).flatten(), "norm").pvalue > LEVEL
    assert not torch.equal(db(channel.state(0).gain), -links.path_loss_db)


@pytest.mark.parametrize("name", CELLS)
def test_the_channel_is_sionnas(name: str) -> None:
    """Sionna's UMi, UMa and RMa for a drop of 64 devices, some in each state, with the phases that
    it draws: the same gains and frequency responses, over time, to rounding."""
    from sionna.phy.channel import cir_to_ofdm_channel, tr38901

    section = config(name, indoor_probability=0.4)
    position, indoor = drop(section, pairs(1, 64))
    place: dict[str, Any] = {"precision": "double", "device": "cpu"}
    server = tr38901.PanelArray(1, 3, "single", "V", "omni", 3.5e9, **place)
    device = tr38901.PanelArray(1, 1, "single", "V", "omni", 3.5e9, **place)
    kind = {"umi": tr38901.UMi, "uma": tr38901.UMa, "rma": tr38901.RMa}[name]
    common = {"ut_array": device, "bs_array": server, "direction": "uplink", **place}
    sionna = kind(3.5e9, **common) if name == "rma" else kind(3.5e9, "low", **common)
    sionna.return_rays = True
    drawn: list[Tensor] = []
    step_10 = sionna._cir_sampler._step_10

    def kept(shape: Any) -> Tensor:
        drawn.append(step_10(shape))
        return drawn[-1]

    sionna._cir_sampler._step_10 = kept
    speed = 10 * torch.tensor([0.6, 0.8, 0.0], dtype=torch.float64).expand(1, 64, 3)
    frequency = group_frequencies(torch.tensor([2e7]), 5)
    with sionna_stream(9, CPU):
        set_topology(sionna, section, position, indoor, "random")
        sionna.set_topology(ut_velocities=speed)
        a, tau, rays = sionna(3, 100.0)
    theirs = cir_to_ofdm_channel(frequency[0], a, tau)[0, 0, :, :, 0]  # [A, K, time, F]

    made = scenario(section)
    generators = made, tr38901.LSPGenerator(made), tr38901.RaysGenerator(made)
    links = drop_batch(section, generators, 9, position, indoor)
    assert len(torch.unique(2 * links.line_of_sight + indoor)) == 3
    links = replace(links, power=links.power * rays.powers[:, :, 0].sum(-1, keepdim=True))
    # rays in the order of their clusters, then as step 11 regroups them; the same for the phases
    as_rays = replace(
        links, angles=drawn[0][:, :, 0, ..., :1].movedim(-1, 2).expand_as(links.angles)
    )
    phase = cell_rays(as_rays).azimuth.clone()
    phase[..., -1] = -2 * math.pi * made.distance_3d[:, 0] * 3.5e9 / 299_792_458
    once = SimpleNamespace(
        streams=Streams([0], [0], dtype=torch.float64),
        once=lambda purpose, shape: phase / (2 * math.pi),
    )
    waves = PlaneWaves(cell_rays(links), 3, frequency, once, 3.5e9)  # type: ignore[arg-type]
    time = torch.arange(3, dtype=torch.float64) / 100
    ours = waves.moved(time[:, None, None, None] * speed)[:, 0].permute(2, 1, 0, 3)
    level = links.shadowing_db - links.path_loss_db - links.penetration_db
    gain = 10 ** (level[0] / 20)
    torch.testing.assert_close(ours, theirs / gain[:, None, None], rtol=0, atol=1e-9)


def test_line_of_sight_power_and_delay() -> None:
    """K / (K + 1) of the power, with the first path's delay; none without line of sight."""
    channel = cell("umi", 64, indoor_probability=0.3)
    rays = cell_rays(channel.links)
    k = channel.links.k_factor
    torch.testing.assert_close(rays.power[..., -1], k / (k + 1))
    torch.testing.assert_close(rays.power.sum(-1), torch.ones(1, 64, dtype=torch.float64))
    assert torch.equal(rays.power[..., -1] > 0, channel.line_of_sight)
    assert not (channel.line_of_sight & channel.indoor).any()
    assert torch.equal(rays.delay_s[..., -1], rays.delay_s.amin(-1))


@pytest.mark.parametrize("snr_db", [None, 10.0])
def test_budgets_are_over_thermal_noise_or_at_the_mean_gain(snr_db: float | None) -> None:
    """Without snr_db, tx power over noise and gains as they are; with it, gains over their mean."""
    section = config("uma", snr_db=snr_db)
    streams = Streams([3, 3], [0, 1], dtype=torch.float64)
    budget = link_budget([section] * 2, 30, streams.device, streams.dtype)
    gain = Cell(section, budget, 30, streams).state(4).gain
    raw = cell("uma", 30, 2).state(0).gain
    if snr_db is None:
        assert torch.equal(gain, raw)
        noise_dbm = -174 + 60 + 5
        assert db(budget.budget).numpy() == pytest.approx(20 - noise_dbm)
    else:
        torch.testing.assert_close(gain, raw / raw.mean(1, keepdim=True))
        assert db(budget.budget).numpy() == pytest.approx(10)


def test_devices_are_dropped_evenly() -> None:
    """r^2 and the angle uniform over the ring (KS), four fifths indoors (binomial); 1,920
    devices."""
    section = config("uma")
    position, indoor = drop(section, pairs(3, 640))
    square = (position[..., :2] ** 2).sum(-1).flatten()
    share = (square - 35.0**2) / (250.0**2 - 35.0**2)
    angle = torch.atan2(position[..., 1], position[..., 0]).flatten() / (2 * math.pi) + 0.5
    assert stats.kstest(share, "uniform").pvalue > LEVEL / 3
    assert stats.kstest(angle, "uniform").pvalue > LEVEL / 3
    assert stats.binomtest(int(indoor.sum()), indoor.numel(), 0.8).pvalue > LEVEL / 3
    assert (position[..., 2] == 1.5).all()


def test_reflection_is_that_of_small_steps() -> None:
    """A plain loop of bounces, from wall to wall, for 20 devices."""
    rng = np.random.default_rng(0)
    radius = 50.0
    start = np.stack([rng.uniform(-30, 30, 20), rng.uniform(-30, 30, 20), np.full(20, 1.5)], 1)
    velocity = np.concatenate([rng.normal(0, 3, (20, 2)), np.zeros((20, 1))], 1)
    times = [0.0, 0.3, 7.0, 40.0, 1000.0]
    time = torch.tensor(times, dtype=torch.float64)[:, None]
    found = reflected(torch.from_numpy(start)[None], torch.from_numpy(velocity)[None], radius, time)
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


def test_a_walk_is_steady_and_stays_inside() -> None:
    channel = cell("umi", 50, 2, speed_kmh=36.0, mobility="linear")
    walk = torch.stack([channel.positions_in(round) for round in range(40)])
    steps = walk.diff(dim=0)[..., :2].norm(dim=-1)
    assert steps.max() <= 10 + 1e-9
    assert steps.median() == pytest.approx(10)
    for round in (0, 39, 2**20, 2**40):
        assert channel.positions_in(round)[..., :2].norm(dim=-1).max() <= 100 + 1e-6
    gain = torch.stack([channel.state(round).gain for round in range(3)])
    assert not torch.equal(gain[0], gain[1])
    standing = cell("umi", 50, 2).state(0).gain
    torch.testing.assert_close(gain[0], standing, rtol=1e-9, atol=0)
    plain = cell("umi", 50, 2, speed_kmh=36.0, mobility="linear", shadowing=False)
    shadowing = torch.stack([db(channel.state(t).gain / plain.state(t).gain) for t in range(3)])
    links = channel.links
    torch.testing.assert_close(shadowing[0], links.shadowing_db, rtol=0, atol=1e-9)
    # d_cor is 10 m in line of sight and 13 m without: one step's correlation is below 0.47
    moved = (shadowing.diff(dim=0) / links.shadowing_std_db).abs()
    assert moved.median() > 0.3


def test_fading_follows_the_way() -> None:
    """Up to the first reflection, walking through the cell and moving on the spot are the same to
    the fading; after it, they differ."""
    settings: dict[str, Any] = {"speed_kmh": 36.0, "subcarrier_groups": 2, "antennas": 2}
    walking = cell("umi", 50, mobility="linear", **settings)
    on_the_spot = cell("umi", 50, **settings)
    straight = (walking.positions_in(2) - walking.positions).norm(dim=-1) > 20 - 1e-9
    assert 10 < straight.sum() < 50
    for round in (0, 1, 2):
        first, second = walking.state(round).h, on_the_spot.state(round).h
        torch.testing.assert_close(first[straight], second[straight], rtol=0, atol=1e-9)
    assert not torch.isclose(first[~straight], second[~straight]).all((1, 2, 3)).any()


def test_gains_stay_where_devices_stand() -> None:
    channel = cell("uma", 5, speed_kmh=30.0)
    assert torch.equal(channel.state(0).gain, channel.state(50).gain)
    assert not torch.equal(channel.state(0).h, channel.state(50).h)
    assert torch.equal(channel.positions_in(50), channel.positions)


def test_the_shadowing_field() -> None:
    """Over 4,000 trials: what the drop says at its place; variance one and correlation exp(-d /
    d_cor) with the drop and between two later places, within 4.2 standard errors of a product of
    normal variables."""
    trials = 4000
    places = pairs(trials, 1)
    level = torch.from_numpy(np.random.default_rng(0).standard_normal((trials, 1)))
    start = torch.tensor([20.0, -7.0, 1.5], dtype=torch.float64).expand(trials, 1, 3)
    outdoors = torch.zeros(trials, 1, dtype=torch.bool)
    links: Any = SimpleNamespace(
        line_of_sight=~outdoors,
        shadowing_db=4.0 * level,
        shadowing_std_db=torch.full((trials, 1), 4.0, dtype=torch.float64),
        shadowing_distance_m=torch.full((trials, 1), 13.0, dtype=torch.float64),
    )
    field = ShadowingField(links, start, outdoors, places)
    steps = torch.tensor([0.0, 2.6, 13.0, 26.0, 1300.0], dtype=torch.float64)
    way = steps[:, None, None, None] * torch.tensor([0.6, -0.8, 0.0], dtype=torch.float64)
    value = field(start + way)[:, :, 0] / 4.0
    torch.testing.assert_close(value[0], level[:, 0])
    covariance = (value @ value.T / trials).numpy()
    known = (-(steps[:, None] - steps).abs() / 13.0).exp().numpy()
    bound = stats.norm.isf(LEVEL / 25 / 2) * np.sqrt((1 + known**2) / trials)
    assert (np.abs(covariance - known) < bound).all()
