"""Devices of given hardware, without a scenario."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core import registry
from otafl.devices.compute.base import Compute
from otafl.devices.compute.kinds import Fixed
from otafl.devices.hardware import Hardware

COMPANIONS: dict[str, dict[str, Any]] = {
    "classes": {"classes": [1e9, 2e9]},
    "csv": {"file": "devices.csv"},
}
"""What a kind of devices cannot be named without; the file is in the working folder."""


def load_compute(name: str, folder: Path) -> Compute:
    """A kind of devices by its name, with what it needs, in this folder."""
    (folder / "devices.csv").write_text("flops_per_s\n1e9\n2e9\n")
    made: Compute = registry.load_settings_class("compute", name)(**COMPANIONS.get(name, {}))
    return made


def make_hardware(section: Compute, devices: int = 1, seed: int = 0) -> Hardware:
    """The hardware of so many devices."""
    return section.build_hardware(devices, np.random.default_rng(seed))


def make_mains_hardware(devices: int) -> Hardware:
    """Devices that draw nothing but for computing."""
    return make_hardware(Fixed(), devices)


def make_battery_hardware(devices: int, **given: Any) -> Hardware:
    """The same, but for what is given: one number for all, or one for each."""
    own = {name: np.broadcast_to(value, devices) for name, value in given.items()}
    return replace(make_mains_hardware(devices), **own)
