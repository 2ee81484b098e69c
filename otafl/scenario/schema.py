"""The schema of a scenario: its sections and their keys.

A section that chooses from a table of `otafl.core.registry` is a mapping with a `name`, or only the
name. Without a name it has its default choice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from otafl.core.choices import declare_choice, declare_section
from otafl.core.settings import Settings
from otafl.scenario.sections import (
    DevicesSettings,
    EngineSettings,
    OutputSettings,
    TrainingSettings,
)

IMPAIRMENTS = "otafl.uplink.impairments.impairments:Impairments.Settings"
FAULTS = "otafl.devices.faults:Faults.Settings"
PRIVACY = "otafl.privacy.mechanism:Privacy.Settings"
ROBUST = "otafl.robust.aggregation:RobustSettings"
SIGNALLING = "otafl.uplink.signalling:Signalling.Settings"

MAX_LETTERS = 150
"""Largest number of bytes in a name: a file's name has at most 255, with endings of otafl's."""

MAX_TRIALS = 10**6
"""Largest number of trials of a point: the plan of a sweep lists them."""


def _check_file_name(name: str) -> str:
    if not re.fullmatch(r"\w[\w.\-]*", name):
        raise ValueError(
            f"got {_shorten(name)!r}; must be letters, digits, '_', '-' and '.', because files are "
            "named after it"
        )
    if len(name.encode()) > MAX_LETTERS:
        raise ValueError(
            f"got {_shorten(name)!r}, {len(name):,} letters; must have at most {MAX_LETTERS} "
            "bytes, because files are named after it"
        )
    return name


def _shorten(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:57]}..."


class Scenario(Settings):
    """A wireless federated-learning experiment."""

    name: Annotated[str, AfterValidator(_check_file_name)]
    """name of the run and of its files"""
    data: Any = declare_choice("data", "data set and its partition over devices")
    model: Any = declare_choice("model", "model that is trained")
    loss: Any = declare_choice(
        "loss", "loss that training lowers; the data set's own if not given", chosen_by="data"
    )
    algorithm: Any = declare_choice("algorithm", "federated method")
    channel: Any = declare_choice("channel", "radio channel of the uplink")
    csi: Any = declare_choice("csi", "channel knowledge of server and devices")
    receiver: Any = declare_choice("receiver", "combining and receive scaling")
    power: Any = declare_choice("power", "power control of the uplink")
    impairments: Any = declare_section(IMPAIRMENTS, "further impairments of the uplink")
    faults: Any = declare_section(FAULTS, "faults of devices and attacks on the training")
    codec: Any = declare_choice("codec", "compression of the updates")
    transport: Any = declare_choice("transport", "how updates reach the server")
    signalling: Any = declare_section(SIGNALLING, "control overhead of a slot")
    privacy: Any = declare_section(PRIVACY, "privacy of the devices' data by the uplink's noise")
    robust: Any = declare_section(ROBUST, "groups of devices, and a robust rule over their means")
    server: Any = declare_choice("server", "server optimiser, applied to the averaged increment")
    downlink: Any = declare_choice("downlink", "how the model reaches the devices")
    topology: Any = declare_choice(
        "topology", "servers, and the devices that each of them receives"
    )
    devices: DevicesSettings = Field(default_factory=DevicesSettings)
    """the devices"""
    training: TrainingSettings = TrainingSettings()
    """the training"""
    trials: int = Field(1, ge=1, le=MAX_TRIALS)
    """Monte-Carlo trials of every point"""
    seed: int = Field(0, ge=0, lt=2**63)
    """root seed of all random numbers"""
    sweep: dict[str, list[Any]] = Field({})
    """axes: dotted key -> values; a component's section (power) is replaced, its name (power.name)
    keeps the other keys. zip: a list of mappings of keys that advance together"""
    engine: EngineSettings = EngineSettings()
    """memory, precision and processor of the computation"""
    output: OutputSettings = OutputSettings()
    """files and variables of the results"""
    track: Any = declare_choice("track", "tracker that receives every evaluation during the run")


@dataclass(frozen=True)
class Point:
    """A point of the sweep.

    Parameters
    ----------
    index : int
        Number of the point, from 0.
    coords : dict
        Coordinate name -> value.
    scenario : Scenario
        Its scenario, without a sweep.
    """

    index: int
    coords: dict[str, Any]
    scenario: Scenario
