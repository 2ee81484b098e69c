"""Offices and factory halls against the tables of TR 38.901, and an independent copy of them."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import stats
from support.made_channels import make_channel, make_pairs
from support.refusals import assert_refused

from otafl.channels.cell import Cell
from otafl.channels.cell_drop import SionnaCell
from otafl.channels.hall import draw_hall_positions, reflect_at_walls

GHZ = 3.5
KINDS: dict[str, dict[str, Any]] = {
    "InH-Office open": {"name": "inh"},
    "InH-Office mixed": {"name": "inh", "indoor_scenario": "mixed"},
    **{
        f"InF-{kind}": {"name": "inf", "factory_scenario": kind}
        for kind in ("SL", "DL", "SH", "DH", "HH")
    },
}
TABLE_7_4_1_1: dict[str, tuple[float, float, float]] = {  # a + b log10 d + c log10 f
    "InH-Office LOS": (32.4, 17.3, 20.0),
    "InH-Office NLOS": (17.3, 38.3, 24.9),
    "InF LOS": (31.84, 21.5, 19.0),
    "InF-SL NLOS": (33.0, 25.5, 20.0),
    "InF-DL NLOS": (18.6, 35.7, 20.0),
    "InF-SH NLOS": (32.4, 23.0, 20.0),
    "InF-DH NLOS": (33.63, 21.9, 20.0),
}


def build(kind: str, devices: int = 64, trials: int = 1, **keys: Any) -> Cell:
    settings = KINDS[kind] | {"carrier_hz": GHZ * 1e9} | keys
    return make_channel(settings.pop("name"), devices, range(trials), seed=5, **settings)


def compute_loss_db(kind: str, row: str, distance: np.ndarray) -> np.ndarray:
    a, b, c = TABLE_7_4_1_1[row]
    found = a + b * np.log10(distance) + c * math.log10(GHZ)
    if row.endswith(" LOS"):
        return found
    seen = compute_loss_db(kind, f"{kind.split()[0].split('-S')[0].split('-D')[0]} LOS", distance)
    found = np.maximum(found, seen)
    return (
        np.maximum(found, compute_loss_db(kind, "InF-SL NLOS", distance))
        if row[4:6] == "DL"
        else found
    )


def compute_sight(kind: str, distance: np.ndarray) -> np.ndarray:
    """Probability of a line of sight, Table 7.4.2-1."""
    d = distance
    if kind == "InH-Office open":
        far = np.where(d <= 49, np.exp(-(d - 5) / 70.8), 0.54 * np.exp(-(d - 49) / 211.7))
        return np.where(d <= 5, 1.0, far)
    if kind == "InH-Office mixed":
        far = np.where(d < 6.5, np.exp(-(d - 1.2) / 4.7), 0.32 * np.exp(-(d - 6.5) / 32.6))
        return np.where(d <= 1.2, 1.0, far)
    if kind == "InF-HH":
        return np.ones_like(d)
    size, density, clutter_m = (10.0, 0.2, 2.0) if kind[4] == "S" else (2.0, 0.6, 6.0)
    length = -size / math.log(1 - density)
    if kind[5] == "H":
        length *= (8.0 - 1.5) / (clutter_m - 1.5)
    return np.exp(-d / length)


@pytest.mark.exact
@pytest.mark.parametrize("kind", KINDS)
def test_gain_is_the_formulas(kind: str) -> None:
    """Of devices that walk from wall to wall, after 0 and 60 seconds."""
    channel = build(kind, 64, 2, shadowing=False, speed_kmh=3.0, mobility="linear")
    settings = channel.settings
    up = settings.server_height_m - settings.device_height_m
    for round in (0, 60):
        place = channel._get_position(torch.full((1, 1), round, dtype=torch.float64))
        seen = channel._pairs.expand_to_trials(channel._find_clear(place)[0]).numpy()
        there = np.stack([channel.get_positions(round, trial).device_m for trial in range(2)])
        assert (np.abs(there) <= np.array(settings.hall_m[:2]) / 2 + 1e-9).all()
        distance = np.hypot(np.linalg.norm(there, axis=2), up)
        family = "InH-Office" if kind.startswith("InH") else "InF"
        hidden = family if family == "InH-Office" else kind
        loss = compute_loss_db(kind, f"{family} LOS", distance)
        if kind != "InF-HH":
            loss = np.where(seen, loss, compute_loss_db(kind, f"{hidden} NLOS", distance))
        gain_db = 10 * np.log10(channel.get_large_scale_state(round).gain.numpy())
        np.testing.assert_allclose(gain_db, -loss, atol=1e-9)


@pytest.mark.law
@pytest.mark.parametrize("kind", KINDS)
def test_share_with_line_of_sight(kind: str) -> None:
    """The number of lines of sight within 4.4 deviations of the sum of their probabilities, near
    the server and far from it."""
    channel = build(kind, 256, 4)
    there = np.stack([channel.get_positions(0, trial).device_m for trial in range(4)])
    distance = np.linalg.norm(there, axis=2)
    seen, law = channel.line_of_sight.numpy(), compute_sight(kind, distance)
    near = distance < np.median(distance)
    for part in (near, ~near):
        spread = math.sqrt((law * (1 - law))[part].sum())
        assert abs((seen - law)[part].sum()) <= 4.4 * spread + 1e-9


@pytest.mark.exact
def test_tables_are_those_of_tr3gpp() -> None:
    """The formulas above, and so the channel's, are those of an independent copy of the report."""
    tables = pytest.importorskip("tr3gpp").tr38901.section("7.4")
    number = r"(\d+\.?\d*)"
    for row, ours in TABLE_7_4_1_1.items():
        scenario, condition = row.split()
        formula = tables.pathloss(scenario=scenario, condition=condition).formula
        formula = formula.split("PL'_{InH-NLOS} = ")[-1].split(";")[0]
        logs = [re.escape(rf"\log_{{10}}({name})") for name in ("d_{3D}", "f_c")]
        slopes = [float(re.findall(number + log, formula)[0]) for log in logs]
        rest = re.sub("|".join(number + log for log in logs), "", formula.split("=")[-1])
        assert (float(re.findall(number, rest)[0]), *slopes) == ours, row
    for kind in KINDS:
        office = {"open": "Indoor-OpenOffice", "mixed": "Indoor-MixedOffice"}
        hall = "InF-HH" if kind == "InF-HH" else "InF-SL, InF-DL, InF-SH, InF-DH"
        formula = tables.los_probability(scenario=office.get(kind.split()[-1], hall)).formula
        numbers = set(map(float, re.findall(number, formula)))
        wanted = {
            "InH-Office open": {5.0, 70.8, 49.0, 211.7, 0.54},
            "InH-Office mixed": {1.2, 4.7, 6.5, 32.6, 0.32},
        }
        assert wanted.get(kind, {1.0}) <= numbers


@pytest.mark.law
@pytest.mark.parametrize("version", ["16.1", "19.2"])
def test_delay_spread_follows_its_law(version: str) -> None:
    """Medians of the rays' delay spreads (Table 7.5-6) at 3.5 GHz. A hall's follows from its volume
    over its surface; an office's from 6 GHz, below which it is constant."""
    ratio = 300 * 150 * 10 / (2 * (300 * 150 + 300 * 10 + 150 * 10))
    laws = {
        "InF-SH": (math.log10(26 * ratio + 14) - 9.35, math.log10(30 * ratio + 32) - 9.44),
        "InH-Office open": (-0.01 * math.log10(7) - 7.692, -0.28 * math.log10(7) - 7.173),
    }
    for kind, law in laws.items():
        channel = build(kind, 256, 4, spec_version=version)
        links = channel.links
        k = links.k_factor[..., None]
        power = torch.cat([links.power / (1 + k), k / (1 + k)], -1)
        delay = torch.cat([links.delay_s, links.delay_s.amin(-1, keepdim=True)], -1)
        mean = (power * delay).sum(-1, keepdim=True)
        spread = (power * (delay - mean) ** 2).sum(-1).sqrt().log10()
        for seen, expected in zip((True, False), law, strict=True):
            found = spread[links.line_of_sight == seen]
            interval = 5 * 1.25 * 0.22 / math.sqrt(len(found)) + 0.03  # finitely many clusters
            assert abs(float(found.median()) - expected) < interval, (kind, seen)


@pytest.mark.law
def test_angle_spread_follows_its_law() -> None:
    """Azimuth spread at the device of links without a line of sight, log-normal below its bound of
    104 degrees: shares below the median and one deviation less (Table 7.5-6)."""
    laws = {
        "InF-DL": (1.72, 0.3),
        "InH-Office mixed": (-0.11 * math.log10(7) + 1.863, 0.12 * math.log10(7) + 0.059),
    }
    for kind, (mean, std) in laws.items():
        settings = Cell.Settings(**KINDS[kind], carrier_hz=GHZ * 1e9).filled
        cell, spreads = SionnaCell(settings), []
        for trial in range(8):
            place = draw_hall_positions(make_pairs(8, 64), settings.hall_m, 1.0, 1.5)[None, trial]
            cell.draw_batch(trial, place, torch.ones(1, 64, dtype=torch.bool), torch.empty(0, 3))
            from sionna.phy.channel.tr38901 import LSPGenerator

            generator = LSPGenerator(cell.scenario)
            generator.topology_updated_callback()
            spreads.append(generator().asa[~cell.scenario.los].log10().numpy())
        found = np.concatenate(spreads)
        for quantile in (mean, mean - std):
            share = stats.norm.cdf((quantile - mean) / std)
            # neighbours are correlated, so a quarter of the links count
            spread = math.sqrt(share * (1 - share) / (len(found) / 4))
            assert abs((found < quantile).mean() - share) < 4.4 * spread, kind


@pytest.mark.law
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("inh", {"blockage": "A"}),
        ("umi", {"blockage": "A", "self_blocking": "landscape"}),
        ("inf", {"blockage": "B", "blockers": 100, "screen_m": (3.0, 3.0)}),
    ],
)
def test_blockage_lowers_the_mean_gain(name: str, keys: dict[str, Any]) -> None:
    """No device gains, the mean falls, and the rays still have unit power."""
    open_, blocked = (
        make_channel(name, 64, range(2), seed=3, shadowing=False, **one) for one in ({}, keys)
    )
    loss = 10 * (open_.get_state(0).gain / blocked.get_state(0).gain).log10()
    assert loss.min() > -1e-9
    assert 0.2 < loss.mean() < 15.0
    power = blocked._waves[0]._rays.abs().square().sum(-1)
    torch.testing.assert_close(power, torch.ones_like(power))


@pytest.mark.law
@pytest.mark.parametrize(("name", "length_m"), [("inh", 10.0), ("inf", 5.0), ("umi", 50.0)])
def test_lines_of_sight_are_correlated_over_the_standards_length(
    name: str, length_m: float
) -> None:
    """Pairs of devices at one distance from the server have both or neither a line of sight as
    often as a normal copula of correlation exp(-d / d_cor) says (7.6.3.3); d_cor is half of the
    clutter's size in inf."""
    settings = Cell.Settings(name=name, spatial_consistency=True)
    cell, radius, count = SionnaCell(settings), 40.0, 150
    for apart in (0.3, 1.0, 3.0):
        half = math.asin(min(1.0, apart * length_m / 2 / radius))
        angle = math.pi / 2 * torch.arange(4) + 0.3
        angle = torch.stack([angle - half, angle + half], 1).flatten().double()
        place = torch.stack([radius * angle.cos(), radius * angle.sin(), 1.5 + 0 * angle], 1)[None]
        indoor = torch.full((1, 8), name != "umi")
        same = both = 0.0
        for seed in range(count):
            links = cell.draw_batch(seed, place, indoor, torch.empty(0, 3))
            pair = links.clear[0].view(4, 2)
            same += float((pair[:, 0] == pair[:, 1]).sum())
            both += float(cell.scenario.los_probability.mean())
        probability = both / count
        z = stats.norm.ppf(probability)
        rho = math.exp(-apart)
        joint = stats.multivariate_normal(cov=[[1, rho], [rho, 1]]).cdf([z, z])
        law = 1 - 2 * probability + 2 * joint
        spread = math.sqrt(law * (1 - law) / (2 * count))  # other pairs are correlated too
        assert abs(same / (4 * count) - law) < 4.4 * spread, apart


@pytest.mark.twin
def test_reflection_at_walls_is_that_of_small_steps() -> None:
    rng = np.random.default_rng(0)
    start = rng.uniform([-10, -4, 1], [10, 4, 1 + 1e-9], (20, 3))
    velocity = np.concatenate([rng.normal(0, 3, (20, 2)), np.zeros((20, 1))], 1)
    time = torch.tensor([[0.0], [0.7], [13.0], [200.0]], dtype=torch.float64)
    found = reflect_at_walls(
        torch.from_numpy(start)[None], torch.from_numpy(velocity)[None], (20.0, 8.0, 3.0), time
    )[:, 0].numpy()
    for device in range(20):
        for axis, half in ((0, 10.0), (1, 4.0)):
            for row, left in enumerate(time[:, 0].tolist()):
                x, v = start[device, axis], velocity[device, axis]
                while left > 0:
                    wall = math.copysign(half, v)
                    step = min(left, (wall - x) / v)
                    x, left = x + step * v, left - step
                    v = -v if left > 0 else v
                assert found[row, device, axis] == pytest.approx(x, abs=1e-9)
    assert found[..., 2] == pytest.approx(start[:, 2] + np.zeros((4, 1)))


@pytest.mark.law
def test_devices_fill_the_hall_except_near_the_server() -> None:
    place = draw_hall_positions(make_pairs(8, 256), (120.0, 60.0, 10.0), 15.0, 1.5).flatten(0, 1)
    assert place[:, :2].norm(dim=1).min() >= 15.0
    assert (place[:, 2] == 1.5).all()
    far = place[place[:, 0].abs() > 15.0].numpy()  # a strip that the disc does not touch
    assert stats.kstest(far[:, 1] / 60 + 0.5, "uniform").pvalue > 1e-4
    assert stats.kstest((np.abs(far[:, 0]) - 15) / 45, "uniform").pvalue > 1e-4


@pytest.mark.exact
def test_settings_that_cannot_be() -> None:
    cases: list[tuple[Any, str]] = [
        ({"name": "inf", "blockage": "A"}, "blockage: got A"),
        ({"name": "umi", "hall_m": [20, 10, 3]}, "hall_m: got"),
        ({"name": "inh", "clutter_density": 0.2}, "clutter_density: got 0.2, but only inf use it"),
        ({"name": "inh", "server_height_m": 4}, "server_height_m: got 4; must be at most hall_m's"),
        ({"name": "inh", "min_distance_m": 20}, "min_distance_m: got 20; must be at most 12.5"),
        ({"name": "inf", "indoor_probability": 0.5}, "but all devices are indoors"),
        ({"name": "umi", "device_height_m": 1}, "device_height_m: got 1; must be from 1.5 to 10"),
        ({"name": "umi", "cell_radius_m": None}, "cell_radius_m: got null"),
        ({"spec_version": "17.0"}, "spec_version"),
    ]
    assert_refused(Cell.Settings, cases, ValidationError)
    assert Cell.Settings(name="inf", factory_scenario="DH").filled.server_height_m == 8.0
    assert Cell.Settings(spec_version=16.1).spec_version == "16.1"
