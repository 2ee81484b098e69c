"""Gains of cells against hand-worked path losses."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import special
from support.made_channels import make_channel
from support.refusals import assert_refused
from torch import Tensor

from otafl.channels.cell import Cell

make_channel = functools.partial(make_channel, seed=3)


def cell(name: str, devices: int, trials: int = 1, **settings: Any) -> Cell:
    return make_channel(name, devices, range(trials), **settings)


def positions_in(channel: Cell, round: int | None = None) -> Tensor:
    """Where devices are at the beginning of a round, [S, K, 3] m; where they were dropped without
    one."""
    if round is None:
        return channel._pairs.expand_to_trials(channel._start)
    time = torch.tensor([[round * channel.settings.round_interval_s]], dtype=torch.float64)
    return channel._pairs.expand_to_trials(channel._get_position(time)[0])


def find_clear(channel: Cell, round: int) -> Tensor:
    """Lines of sight [S, K] of outdoor devices at the beginning of a round."""
    time = torch.tensor([[round * channel.settings.round_interval_s]], dtype=torch.float64)
    return channel._pairs.expand_to_trials(channel._find_clear(channel._get_position(time))[0])


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


@pytest.mark.exact
@pytest.mark.parametrize(("name", "formula"), [("umi", umi), ("uma", uma), ("rma", rma)])
def test_gain_outdoors_is_the_formulas(name: str, formula: Any) -> None:
    """Without shadowing, cars and houses, by position and line of sight, of walking devices after 0
    and 20 seconds."""
    settings: dict[str, Any] = {"speed_kmh": 3.0, "mobility": "linear"}
    settings |= {"in_car": False} if name == "rma" else {}
    channel = cell(name, 40, 2, shadowing=False, indoor_probability=0.0, **settings)
    server = torch.tensor([0.0, 0.0, Cell.Settings(name=name).server_height_m], dtype=torch.float64)
    for round in (0, 20):
        distance = (positions_in(channel, round) - server).norm(dim=-1)
        assert distance.max() < {"umi": 210, "uma": 670, "rma": 3850}[name]  # the break points
        gain = channel.get_state(round).gain
        kinds = find_clear(channel, round).int()
        expected = [
            -formula(d, 3.5)[1 - los]
            for d, los in zip(distance.flatten().tolist(), kinds.flatten().tolist(), strict=True)
        ]
        assert db(gain).flatten().numpy() == pytest.approx(expected, abs=1e-9)


@pytest.mark.law
@pytest.mark.parametrize("name", ["umi", "inh"])
def test_lines_of_sight_change_on_the_way(name: str) -> None:
    """Their share far and near is that of Table 7.4.2-1 in each round, within 4 deviations of
    independent devices, and the states of two rounds are a normal copula's of correlation
    exp(-d / d_cor). Devices that cross the cell change, standing ones do not."""
    keys: dict[str, Any] = {"indoor_probability": 0.0} if name == "umi" else {"hall_m": (90, 80, 3)}
    keys |= {"mobility": "linear", "round_interval_s": 1.0, "shadowing": False}
    step_m, length_m = {"umi": (10.0, 50.0), "inh": (2.0, 10.0)}[name]
    channel = cell(name, 10, 150, speed_kmh=step_m * 3.6, **keys)
    first = find_clear(channel, 0)
    assert torch.equal(first, channel.line_of_sight)
    gain = channel.get_state(0).gain
    assert not torch.equal(gain > gain.median(), channel.get_state(30).gain > gain.median())
    for round in (0, 5, 30):
        d = positions_in(channel, round)[..., :2].norm(dim=-1)
        law = 18 / d + (-d / 36).exp() * (1 - 18 / d)
        if name == "inh":
            law = torch.where(d <= 49, (-(d - 5) / 70.8).exp(), 0.54 * (-(d - 49) / 211.7).exp())
        law = law.clamp(0.0, 1.0)
        seen = find_clear(channel, round)
        for part in (d < d.median(), d >= d.median()):
            spread = float((law * (1 - law))[part].sum()) ** 0.5
            assert abs(float(seen[part].sum() - law[part].sum())) < 4.0 * spread
    pair = positions_in(channel, 0), positions_in(channel, 1)
    moved = (pair[1] - pair[0]).norm(dim=-1)
    p = [channel._look_up(one[None], first)[1].flatten().numpy() for one in pair]
    rho = (-moved / length_m).exp().flatten().numpy()
    draws = np.random.default_rng(0).standard_normal((2, 400, len(rho)))
    second = rho * draws[0] + (1 - rho**2) ** 0.5 * draws[1]
    copula = ((special.ndtr(draws[0]) < p[0]) == (special.ndtr(second) < p[1])).mean(0)
    same = (first == find_clear(channel, 1)).double()
    spread = (copula * (1 - copula)).sum() ** 0.5
    assert abs(float(same.sum()) - copula.sum()) < 4.0 * spread
    assert copula.mean() < 0.95
    standing = cell(name, 10, 150, speed_kmh=0.0, **keys)
    assert torch.equal(find_clear(standing, 30), standing.line_of_sight)


@pytest.mark.exact
def test_a_line_of_sight_turns_its_ray_on_and_off() -> None:
    """The last path of each of both drops is the line of sight."""
    channel = cell("umi", 8, 4, indoor_probability=0.0, mobility="linear", speed_kmh=100.0)
    for round in (0, 4, 9):
        index = torch.tensor([round])
        time_s = index[None].double()
        taps = channel.draw_taps(index, time_s)[0, :, :, 0]
        half = taps.shape[-1] // 2
        seen = taps[..., [half - 1, -1]].abs().amax(-1) > 0
        assert torch.equal(channel._pairs.expand_to_trials(seen), find_clear(channel, round))
        changed = find_clear(channel, round) != channel.line_of_sight
        assert (taps[..., :half].abs().amax(-1) > 0).eq(~changed).all()
    assert changed.any()


@pytest.mark.exact
def test_walls_and_shadowing_take_from_the_gain() -> None:
    """Of devices that stand and of those that begin to walk."""
    for keys in ({}, {"speed_kmh": 36.0, "mobility": "linear"}):
        channel = cell("umi", 50, 2, **keys)
        links = channel.links
        assert (links.penetration_db > 5).sum() > 20
        level = links.shadowing_db - links.path_loss_db - links.penetration_db
        torch.testing.assert_close(db(channel.get_state(0).gain), level, rtol=0, atol=1e-6)


@pytest.mark.exact
def test_defaults_are_the_cells_own() -> None:
    """Half of an inter-site distance of 200 m, 500 m and 5 km (TR 38.901 Tables 7.2-1 and 7.2-3);
    what is given stays, and so does what is read back."""
    expected = {"umi": (100, 10, 10, 0.8), "uma": (250, 35, 25, 0.8), "rma": (2500, 35, 35, 0.5)}
    for name, numbers in expected.items():
        own = Cell.Settings(name=name)
        places = own.cell_radius_m, own.min_distance_m, own.server_height_m, own.indoor_probability
        assert places == numbers
        assert Cell.Settings.model_validate(own.model_dump()) == own
        assert Cell.Settings(name=name, server_height_m=17.0).server_height_m == 17.0


@pytest.mark.exact
def test_settings_that_cannot_be() -> None:
    cases: list[tuple[Any, str]] = [
        ({"path_loss_db": 90}, "path_loss_db: got 90, but the cell has its own path loss"),
        ({"cell_radius_m": 5}, "min_distance_m: got 10, but cell_radius_m is only 5"),
        ({"mobility": "linear"}, "needs speed_kmh; set it, e.g. to 3"),
        ({"in_car": False}, "in_car: got false, but umi has no cars"),
        ({"name": "village"}, "umi"),
    ]
    assert_refused(Cell.Settings, cases, ValidationError)
