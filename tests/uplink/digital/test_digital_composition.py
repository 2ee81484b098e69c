"""OFDMA, truncation at peak power and sparse packets beside the other parts that they meet."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from contract.small import points

from otafl.running.stack_run import run_stack
from otafl.scenario import Point

pytestmark = pytest.mark.exact

SNR_DB, BANDWIDTH_HZ, POWER_W = 10.0, 1e6, 0.1

FAIR: dict[str, Any] = {
    "data.partition": "iid",
    "engine.dtype": "float64",
    "channel": {
        "name": "rayleigh",
        "snr_db": SNR_DB,
        "bandwidth_hz": BANDWIDTH_HZ,
        "tx_power_dbm": 20.0,
    },
    "codec": {"name": "topk", "keep": 0.1, "position_code": "enumerative", "value_bits": 4},
    "transport": {
        "name": "digital",
        "access": "ofdma",
        "gain_threshold": 0.5,
        "constraint": "peak",
        "shares": "active",
    },
}
PHONE: dict[str, Any] = {"name": "phone", "circuit_w": 0.0}

PARTS: dict[str, dict[str, Any]] = {
    "turns": {"transport.access": "tdma"},
    "schemes": {"transport.rate": "mcs", "csi": {"name": "error", "variance": 0.1}},
    "fitted": {"transport.max_symbols": 400.0, "transport.over_budget": "quantise"},
    "cells": {"topology": {"name": "cells", "servers": 3}},
    "asynchronous": {"devices.protocol": "asynchronous"},
    "deadline": {"devices.deadline_s": 1.0, "devices.compute": PHONE},
    "joint": {
        "transport.shares": "all",
        "devices.cpu_frequency": "joint",
        "devices.deadline_s": 1.0,
        "devices.compute": PHONE,
    },
    "battery": {"devices.compute": PHONE | {"battery_j": 0.05, "harvest_w": 0.01}},
    "crashes": {"faults": {"crash_probability": 0.3, "byzantine": 1, "attack": "duplicate"}},
    "interference": {"impairments": {"interference_db": -3.0, "interferers": 2}},
}
"""Part that they meet -> its settings."""


def make_points(name: str) -> list[Point]:
    return points(copy.deepcopy(FAIR) | PARTS[name])


@pytest.mark.parametrize("name", PARTS)
def test_energy_is_within_the_peak_budget(name: str) -> None:
    """A device radiates at most its power for the time of the slots, and in turns all do so."""
    found = run_stack(make_points(name)).variables
    servers = PARTS[name].get("topology", {}).get("servers", 1)  # airtime is a mean over them
    energy, airtime = found["tx_energy_j"], found["airtime_s"] * servers
    if PARTS[name].get("transport.access") == "tdma":
        energy = energy.sum(-1, keepdims=True)
    assert (energy <= POWER_W * airtime[..., None] * (1 + 1e-6)).all()
    assert (energy > 0).any()
    assert np.isfinite(found["test_loss"]).all()
