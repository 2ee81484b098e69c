"""Gains of cells against hand-worked path losses."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
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
        kinds = channel.line_of_sight.int()
        expected = [
            -formula(d, 3.5)[1 - los]
            for d, los in zip(distance.flatten().tolist(), kinds.flatten().tolist(), strict=True)
        ]
        assert db(gain).flatten().numpy() == pytest.approx(expected, abs=1e-9)


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
