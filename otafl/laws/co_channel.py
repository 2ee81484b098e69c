"""Laws of cells that share a band: co-channel cells, their places, and the parts of the band."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from otafl import channels, topology
from otafl.core.units import db_to_linear
from otafl.laws.bench import Bench, Rig
from otafl.laws.cells import compute_losses
from otafl.laws.checks import Check, check_exact, check_mean, check_ratios, state_law
from otafl.laws.transports import THERMAL_DBM_PER_HZ
from otafl.scenario import load_scenario
from otafl.topology.hexagons import build_hexagons

MACDONALD = "MacDonald 1979"
TWO_TIERS = "6 cells at D, 6 at sqrt(3) D, 6 at 2 D"

TIERS = ((6, 1.0), (6, math.sqrt(3.0)), (6, 2.0))
"""Numbers of co-channel cells in the plane, and their distances in co-channel distances."""

LAYOUTS = ((7, 1), (12, 3), (16, 4), (19, 1), (21, 3), (21, 7))
"""Numbers of servers, and reuse."""

EXPONENTS = (2.1, 3.53)
"""Path-loss exponents of umi, with and without a line of sight."""

OUTDOORS = {"name": "umi", "indoor_probability": 0.0, "shadowing": False}
SITES_M, RADIUS_M, LEAST_M = 55.0, 10.5, 10.0
"""Distance of servers, and of devices in a ring around them.

The second tier at reuse 3 is within the breakpoint of the path loss.
"""

DEVICES, REALS, ROUNDS = 4, 64, 8
FEW_DEVICES = 3
"""Devices whose 18 images are one batch of Sionna's links."""

BANDWIDTH_HZ, POWER_W = 2e6, 0.1


@state_law("topology cells: co-channel tiers", f"{MACDONALD}; {TWO_TIERS}", "{}", LAYOUTS)
def _tiers(bench: Bench, sites: tuple[int, int]) -> Iterator[Check]:
    """Compare the sum of distance^-exponent over co-channel cells with the plane's two tiers."""
    layout = build_hexagons(*sites)
    assert layout is not None
    far = np.linalg.norm(layout.images.shift, axis=2) / math.sqrt(sites[1])
    for exponent in EXPONENTS:
        law = sum(count * distance**-exponent for count, distance in TIERS)
        yield check_ratios((far**-exponent).sum(1), np.full(sites[0], law), 1e-9, f"{exponent:g}")


def _compute_mean_gain(far_m: float) -> float:
    """Compute the mean gain from the devices in a ring around a server to one at a distance.

    The mean is over line of sight, distance to the own server and direction.
    """
    turn = 2.0 * math.pi * np.arange(720) / 720
    own = np.sqrt(np.linspace(LEAST_M**2, RADIUS_M**2, 5))[:, None]
    distance = np.hypot(far_m + own * np.cos(turn), own * np.sin(turn))
    seen, hidden = (10.0 ** (-loss / 10.0) for loss in compute_losses("umi", distance))
    clear = 18.0 / distance + np.exp(-distance / 36.0) * (1.0 - 18.0 / distance)
    return float((clear * seen + (1.0 - clear) * hidden).mean())


def _make_cells(servers: int, reuse: int) -> dict[str, Any]:
    return {
        "channel": OUTDOORS | {"cell_radius_m": RADIUS_M, "min_distance_m": LEAST_M},
        "power": "full",
        "topology": {
            "name": "cells", "servers": servers, "reuse": reuse, "site_distance_m": SITES_M
        },
    }  # fmt: skip


@state_law(
    "topology cells: interference of two tiers", f"{MACDONALD}; {TWO_TIERS}; sum E g |p|^2 m/2"
)
def _interference(bench: Bench) -> Iterator[Check]:
    """Compare the interference of twelve servers at reuse 3 with that of two tiers.

    Each server has three others on its part of the band, which stand for the plane's 18.
    """
    rig = bench.build_rig(FEW_DEVICES, 4 if bench.quick else 6, _make_cells(12, 3))
    found, sent = [], 0.0
    for round in range(ROUNDS):
        saved = rig.send(rig.draw_symbols(REALS, round, 1.0), round)[1].saved_tensors
        found.append((saved["neighbours/0"].sum(1) / REALS).cpu().numpy())
        sent = float((saved["p/0"][:, 0].abs().square() * saved["m/0"][:, 0]).mean())
    apart = math.sqrt(3.0) * SITES_M
    gain = sum(count * _compute_mean_gain(far * apart) for count, far in TIERS)
    law = FEW_DEVICES * sent / 2.0 * gain
    yield check_mean(1.0, np.mean(found, axis=0) / law)


@state_law("topology cells: gains by the map", f"{MACDONALD}; TR 38.901, table 7.4.1-1")
def _map_gains(bench: Bench) -> Iterator[Check]:
    """Compare gains with the path losses of the distances on the map.

    The distances are those from servers to the devices of neighbouring cells, with or without a
    line of sight.
    """
    points = {"channel": OUTDOORS | {"cell_radius_m": 40.0}, "devices": {"count": DEVICES}}
    points["topology"] = {"name": "cells", "servers": 7, "site_distance_m": SITES_M}
    scenario = load_scenario({"name": "map"} | points)
    rows = topology.Rows.build([scenario], [0], bench.torch_device, torch.float64)
    servers = topology.build(rows)
    _, own = channels.build([row.channel for row in rows.scenarios], DEVICES, rows.streams)
    intercell, there = servers.build_intercell(own), servers.get_positions(own, 0)
    assert intercell is not None
    assert there is not None
    gain = intercell.channel.get_state(0).gain.unflatten(1, (-1, DEVICES)).cpu().numpy()
    place = there.device_m.reshape(7, DEVICES, 2)
    found, law = [], []
    for server, others in enumerate(intercell.interferers):
        for link, other in enumerate(others[:6]):  # the nearest images come first
            if np.linalg.norm(there.base_m[other] - there.base_m[server]) > 1.01 * SITES_M:
                continue  # the nearest image is outside the map
            distance = np.linalg.norm(place[other] - there.base_m[server], axis=1)
            loss = -10.0 * np.log10(gain[server, link])
            either = np.stack(compute_losses("umi", distance))
            found.append(loss)
            law.append(np.take_along_axis(either, np.abs(either - loss).argmin(0)[None], 0)[0])
    pairs = 2 * (6 + 6)  # spokes and rim, both ways
    yield check_exact(float(pairs), float(len(found)), case="pairs of cells")
    yield check_ratios(np.stack(found), np.stack(law))


@state_law("topology cells: places of a server", "E h h'^* = 0 and E|h|^2 = 1, place by place")
def _places(bench: Bench) -> Iterator[Check]:
    """Compare channels from two of the nine places of a server, and from two servers."""
    section = {"channel": OUTDOORS | {"subcarrier_groups": 1}, "devices": {"count": DEVICES}}
    section["topology"] = {"name": "cells", "servers": 3}
    scenario = load_scenario({"name": "places"} | section)
    rows = topology.Rows.build([scenario] * 2, range(2), bench.torch_device, torch.float64)
    servers = topology.build(rows)
    _, own = channels.build([row.channel for row in rows.scenarios], DEVICES, rows.streams)
    intercell = servers.build_intercell(own)
    assert intercell is not None
    seen = intercell.interferers[0]
    places = [place for place, other in enumerate(seen) if other == seen[0]]
    yield check_exact(9.0, float(len(places)), 0.0, "places")
    apart = places[-1]
    states = (intercell.channel.get_state(round).h for round in range(bench.scale_size(256)))
    h = np.stack([one.unflatten(1, (-1, DEVICES))[..., 0, 0, 0].cpu().numpy() for one in states])
    for case, place in (("last of one server", apart), ("next server", 1)):
        product = h[:, :, 0] * h[:, :, place].conj()
        yield check_mean(0.0, product.real, f"{case}, real")
        yield check_mean(0.0, product.imag, f"{case}, imaginary")
    yield check_mean(1.0, np.abs(h[:, :, [0, apart]]) ** 2, "mean power")


@state_law(
    "topology cells: part of the band", "symbols of r / B, noise in B / r", "reuse {}", (1, 7)
)
def _band_share(bench: Bench, reuse: int) -> Iterator[Check]:
    """Compare the cost and the SNR of a transmission over B / r.

    It takes r times as long and as many joules, at r times the SNR, given or physical.
    """
    channel = {"name": "awgn", "snr_db": 10.0, "bandwidth_hz": BANDWIDTH_HZ, "tx_power_dbm": 20.0}
    far = {"snr_db": None, "path_loss_db": 100.0, "noise_figure_db": 7.0}
    rig = _make_rig(bench, channel, reuse, "full")
    report = rig.send(rig.draw_symbols(REALS, 0, 1.0), 0)[1]
    airtime_s = reuse * REALS / BANDWIDTH_HZ
    yield check_exact(airtime_s, float(report.airtime_s.mean()), case="seconds")
    yield check_exact(POWER_W * airtime_s, float(report.energy_j.max()), case="joules")
    noise_dbm = THERMAL_DBM_PER_HZ + 10.0 * math.log10(BANDWIDTH_HZ / reuse) + 7.0
    for case, section, snr_db in (
        ("SNR", channel, 10.0 + 10.0 * math.log10(reuse)),
        ("physical SNR", channel | far, 20.0 - 100.0 - noise_dbm),
    ):
        record = _make_rig(bench, section, reuse, "ci").record(1, REALS, 1.0)
        yield check_exact(db_to_linear(snr_db), float(record.eta.mean()), case=case)


def _make_rig(bench: Bench, channel: dict[str, Any], reuse: int, power: str) -> Rig:
    cells = {"name": "cells", "servers": 7, "reuse": reuse}
    return bench.build_rig(DEVICES, 1, {"channel": channel, "power": power, "topology": cells})
