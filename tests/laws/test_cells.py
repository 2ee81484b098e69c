"""Laws of devices in 3GPP cells: where they are, what walls and cars take, and how shadowing
changes on their way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from support.closed_forms import holds

from otafl import channels, topology
from otafl.scenario import load_scenario
from otafl.validation.bench import Bench, Rig
from otafl.validation.cells import compute_losses, drop, level_db, outdoors
from otafl.validation.channels import SPEED_KMH
from otafl.validation.checks import (
    Check,
    check_distribution,
    check_exact,
    check_mean,
    check_ratios,
    check_share,
)

pytestmark = pytest.mark.law

LEAST_M, MOST_M = 60.0, 200.0
INDOORS = {"umi": 0.8, "rma": 0.5}
"""Share of the devices that are indoors, TR 38.901, 7.2."""
SPREAD_DB = (4.0, 7.82)
APART_M = (10.0, 13.0)
"""Deviation and correlation distance of umi's shadowing, with and without a line of sight."""


def part_of(rig: Rig, name: str) -> np.ndarray:
    """An attribute of the channel or of its `links`, [S, K]."""
    channel: Any = rig.link.channel
    value = getattr(channel, name) if hasattr(channel, name) else getattr(channel.links, name)
    return np.asarray(value)


def build_ring(shadowing: bool) -> Rig:
    """Devices that move straight through an umi cell, outdoors and not near its server."""
    way = {"mobility": "linear", "speed_kmh": SPEED_KMH, "round_interval_s": 1.0}
    size = {"cell_radius_m": MOST_M, "min_distance_m": LEAST_M}
    settings = outdoors("umi") | {"shadowing": shadowing}
    return drop(Bench(), "umi", 64, 8, **settings, **way, **size)


@holds()
def test_devices_are_even_over_the_ground(bench: Bench) -> Iterator[Check]:
    rig = build_ring(False)
    places = (rig.link.channel.get_positions(0, trial) for trial in range(rig.num_trials))
    x, y = np.concatenate([one.device_m for one in places if one is not None]).T
    area = stats.uniform(LEAST_M**2, MOST_M**2 - LEAST_M**2)
    yield check_distribution(x**2 + y**2, area.cdf, "squared distance")
    yield check_distribution(np.arctan2(y, x) / (2.0 * np.pi) + 0.5, stats.uniform.cdf, "angle")


@holds(INDOORS)
def test_share_of_devices_indoors(bench: Bench, name: str) -> Iterator[Check]:
    indoor = part_of(drop(bench, name, 64, 2), "indoor")
    yield check_share(INDOORS[name], int(indoor.sum()), indoor.size)


@holds()
def test_loss_of_cars(bench: Bench) -> Iterator[Check]:
    """Of devices outdoors in rma, that are in cars, the penetration loss is N(9, 5) dB."""
    rig = drop(bench, "rma", 64, 4, indoor_probability=0.0, cell_radius_m=2500.0)
    loss = part_of(rig, "shadowing_db") - level_db(rig) - part_of(rig, "path_loss_db")
    yield check_distribution(loss, stats.norm(9.0, 5.0).cdf)


@holds()
def test_shadowing_of_moving_devices(bench: Bench) -> Iterator[Check]:
    """TR 38.901, eq. 7.4-5: the correlation over a distance d is exp(-d / d_cor)."""
    rig, plain = build_ring(True), build_ring(False)
    first, _, later = (level_db(rig, round) - level_db(plain, round) for round in range(3))
    seen = part_of(rig, "line_of_sight")
    law = np.exp(-2.0 * SPEED_KMH / 3.6 / np.where(seen, *APART_M))
    product = first * later / np.where(seen, *SPREAD_DB) ** 2 - law
    yield check_mean(float(law.mean()), product + law.mean())


@holds()
def test_gains_between_cells_are_those_of_the_map(bench: Bench) -> Iterator[Check]:
    """From a server to the devices of its neighbours, with or without a line of sight."""
    devices, apart_m = 4, 55.0
    cell: dict[str, Any] = {"name": "umi", "indoor_probability": 0.0, "shadowing": False}
    points = {"channel": cell | {"cell_radius_m": 40.0}, "devices": {"count": devices}}
    cells = {"name": "cells", "servers": 7, "site_distance_m": apart_m}
    scenario = load_scenario({"name": "map", "topology": cells} | points)
    rows = topology.Rows.build([scenario], [0], bench.torch_device, torch.float64)
    servers = topology.build(rows)
    _, own = channels.build([row.channel for row in rows.scenarios], devices, rows.streams)
    intercell, there = servers.build_intercell(own), servers.get_positions(own, 0)
    assert intercell is not None
    assert there is not None
    gain = intercell.channel.get_state(0).gain.unflatten(1, (-1, devices)).numpy()
    place = there.device_m.reshape(7, devices, 2)
    found, law = [], []
    for server, others in enumerate(intercell.interferers):
        for link, other in enumerate(others[:6]):  # the nearest images come first
            if np.linalg.norm(there.base_m[other] - there.base_m[server]) > 1.01 * apart_m:
                continue  # the nearest image is outside the map
            distance = np.linalg.norm(place[other] - there.base_m[server], axis=1)
            loss = -10.0 * np.log10(gain[server, link])
            either = np.stack(compute_losses("umi", distance))
            found.append(loss)
            law.append(np.take_along_axis(either, np.abs(either - loss).argmin(0)[None], 0)[0])
    yield check_exact(24.0, float(len(found)), case="pairs of neighbours")
    yield check_ratios(np.stack(found), np.stack(law))
