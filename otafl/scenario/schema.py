"""The schema of a scenario: its sections and their keys.

A section that chooses from a table of `otafl.core.registry` is a mapping with a `name`, or only the
name. Without a name it has its default choice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from otafl.core.choices import chosen, section
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
SIGNALLING = "otafl.uplink.signalling:Signalling.Settings"

MOST_LETTERS = 150
"""Largest number of bytes in a name: a file's name has at most 255, with endings of otafl's."""

MOST_TRIALS = 10**6
"""Largest number of trials of a point: the plan of a sweep lists them."""


def _file_name(name: str) -> str:
    if not re.fullmatch(r"\w[\w.\-]*", name):
        raise ValueError(
            f"got {_short(name)!r}; must be letters, digits, '_', '-' and '.', because files are "
            "named after it"
        )
    if len(name.encode()) > MOST_LETTERS:
        raise ValueError(
            f"got {_short(name)!r}, {len(name):,} letters; must have at most {MOST_LETTERS} bytes, "
            "because files are named after it"
        )
    return name


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:57]}..."


class Scenario(Settings):
    """A wireless federated-learning experiment."""

    name: Annotated[str, AfterValidator(_file_name)]
    """name of the run and of its files"""
    data: Any = chosen("data", "data set and its partition over devices")
    model: Any = chosen("model", "model that is trained")
    algorithm: Any = chosen("algorithm", "federated method")
    channel: Any = chosen("channel", "radio channel of the uplink")
    csi: Any = chosen("csi", "channel knowledge of server and devices")
    receiver: Any = chosen("receiver", "combining and receive scaling")
    power: Any = chosen("power", "power control of the uplink")
    impairments: Any = section(IMPAIRMENTS, "further impairments of the uplink")
    faults: Any = section(FAULTS, "faults of devices and attacks on the training")
    codec: Any = chosen("codec", "compression of the updates")
    transport: Any = chosen("transport", "how updates reach the server")
    signalling: Any = section(SIGNALLING, "control overhead of a slot")
    privacy: Any = section(PRIVACY, "privacy of the devices' data by the uplink's noise")
    server: Any = chosen("server", "server optimiser, applied to the averaged increment")
    downlink: Any = chosen("downlink", "how the model reaches the devices")
    topology: Any = chosen("topology", "servers, and the devices that each of them receives")
    devices: DevicesSettings = Field(default_factory=DevicesSettings)
    """the devices"""
    training: TrainingSettings = TrainingSettings()
    """the training"""
    trials: int = Field(1, ge=1, le=MOST_TRIALS)
    """Monte-Carlo trials of every point"""
    seed: int = Field(0, ge=0, lt=2**63)
    """root seed of all random numbers"""
    sweep: dict[str, list[Any]] = Field({})
    """axes: dotted key -> values; a choice (power, power.name) replaces its whole section. zip: a
    list of mappings of keys that advance together"""
    engine: EngineSettings = EngineSettings()
    """memory, precision and processor of the computation"""
    output: OutputSettings = OutputSettings()
    """files and variables of the results"""
    track: Any = chosen("track", "tracker that receives every evaluation during the run")


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
