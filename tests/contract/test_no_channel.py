"""A device without a channel is silent, whatever carries the updates: nothing of it is heard or
charged, and the others' mean is theirs. Where nobody has one, the round changes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run
from torch import Tensor

import otafl
from otafl.channels.custom import Draws
from otafl.core import registry

pytestmark = pytest.mark.exact

ROUNDS, DEAD = 3, 1
"""DEAD is the one of four devices that has no channel, where the others have one."""

RECEIVERS = [name for name in registry.list_names("receiver") if name != "auto"]

DIGITAL: dict[str, dict[str, Any]] = {
    "shannon": {},
    "ofdma": {"access": "ofdma"},
    "mcs": {"rate": "mcs"},
    "mcs ofdma": {"rate": "mcs", "access": "ofdma"},
    "one mcs": {"rate": "mcs", "mcs_index": 0},
    "ldpc": {"rate": "mcs", "mcs_index": 0, "coding": "ldpc"},
    "bound": {"max_symbols": 4e4},
    "fitted": {"max_symbols": 4e4, "over_budget": "quantise", "access": "ofdma"},
}


def faded(draw: Draws, dead: int = 1, scale: float = 0.0, antennas: int = 1) -> Tensor:
    """Rayleigh fading, `scale` of it for device DEAD, or for all where `dead` is 4."""
    amplitude = torch.ones(draw.devices, 1)
    amplitude[DEAD if dead == 1 else slice(None)] = scale
    return draw.draw_complex_normal(antennas) * amplitude


faded.unit_power = False  # type: ignore[attr-defined]


def channel(dead: int, scale: float = 0.0, **options: Any) -> dict[str, Any]:
    name = "contract.test_no_channel:faded"
    return {"name": name, "snr_db": 30.0, "dead": dead, "scale": scale, **options}


def check(keys: dict[str, Any], dead: int) -> dict[str, np.ndarray]:
    """Run with so many of four devices without a channel; whole models are sent, so that a mean of
    zero would show."""
    keys = {"algorithm": {"name": "fedavg", "sends": "model"}, **keys}
    one = engine(keys)
    start = {name: block.clone() for name, block in one.server.items()}
    run(one, ROUNDS)
    assert all(block.isfinite().all() for block in one.server.values())
    assert all(torch.equal(one.server[name], start[name]) for name in start) == (dead == 4)
    taken = {name: value.numpy() for name, value in one.means.take().items()}
    for name in ("radio_j", "tx_power", "airtime_s", "uplink_symbols", "aggregation_nmse"):
        assert np.isfinite(taken[name]).all(), name
    silent = [DEAD] if dead == 1 else [0, 1, 2, 3]
    assert (taken["tx_power"][:, silent] == 0).all()
    assert (taken["radio_j"][:, silent] == 0).all()
    assert (one.counts["updates_used"] <= (4 - dead) * ROUNDS).all()
    assert taken["airtime_s"].max() < 10
    return taken


DEAD_AND_SCALE = pytest.mark.parametrize(("dead", "scale"), [(1, 0.0), (4, 1e-9)])


@pytest.mark.usefixtures("fewest_states")
@DEAD_AND_SCALE
@pytest.mark.parametrize("power", registry.list_names("power"))
def test_policies(power: str, dead: int, scale: float) -> None:
    check({"power": power, "channel": channel(dead, scale)}, dead)


@pytest.mark.parametrize(("dead", "scale"), [(1, "policy"), (4, "mmse")])
@pytest.mark.parametrize("receiver", RECEIVERS)
def test_receivers(receiver: str, dead: int, scale: str) -> None:
    power = registry.load_settings_class("receiver", receiver).example.get("power.name", "ci")
    keys = {"power": power, "receiver": {"name": receiver, "scale": scale}}
    check(keys | {"channel": channel(dead, antennas=3)}, dead)


def test_gbma_has_the_mean_gain_of_those_with_a_channel() -> None:
    """E|h| = sqrt(pi)/2 over three devices, not over four: eta |p|^-2 = pi / 4, within 3 % as of
    4,096 states."""
    uplink = otafl.WirelessUplink(4, channel=channel(1), power="gbma")
    _, report = uplink(0, np.ones((4, 5)))
    gain = report.eta / np.abs(report.p[0]) ** 2
    assert gain == pytest.approx(np.pi / 4, rel=0.03)


@DEAD_AND_SCALE
@pytest.mark.parametrize(
    "rule", [pytest.param(one, marks=pytest.mark.slow) if one == "ldpc" else one for one in DIGITAL]
)
def test_digital(rule: str, dead: int, scale: float) -> None:
    codec = {"name": "uniform", "bits": 4}
    keys = {"transport": {"name": "digital", **DIGITAL[rule]}, "codec": codec}
    taken = check(keys | {"channel": channel(dead, scale)}, dead)
    if dead == 4:
        assert (taken["airtime_s"] == 0).all()
        assert (taken["uplink_bits"] == 0).all()
