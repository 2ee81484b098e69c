"""Describe a scenario: its sections, and what each of them holds.

A section that chooses from a table of `otafl.core.registry` is a mapping with a `name`, or the name
alone; without a name it keeps its default choice.
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
"""Bytes of a name: a file's has 255 at most, and endings of otafl's."""

MOST_TRIALS = 10**6
"""Of a point: the plan of a sweep lists them."""


def _file_name(name: str) -> str:
    if not re.fullmatch(r"\w[\w.\-]*", name):
        raise ValueError(
            f"got {_short(name)!r}; must be letters, digits, '_', '-' and '.', as files are named "
            "after it"
        )
    if len(name.encode()) > MOST_LETTERS:
        raise ValueError(
            f"got {_short(name)!r}, {len(name):,} letters; must have at most {MOST_LETTERS} bytes, "
            "as files are named after it"
        )
    return name


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:57]}..."


class Scenario(Settings):
    """A scenario is a wireless federated-learning experiment."""

    name: Annotated[str, AfterValidator(_file_name)]
    """name of the run and of its files"""
    data: Any = chosen("data", "data set and its partition over devices")
    model: Any = chosen("model", "what is trained")
    algorithm: Any = chosen("algorithm", "federated method")
    channel: Any = chosen("channel", "radio channel of the uplink")
    csi: Any = chosen("csi", "what is known of the channel")
    receiver: Any = chosen("receiver", "combining and receive scaling")
    power: Any = chosen("power", "power control of the uplink")
    impairments: Any = section(IMPAIRMENTS, "what else goes wrong on the uplink")
    faults: Any = section(FAULTS, "what is done on purpose against the training")
    codec: Any = chosen("codec", "compression of what is sent")
    transport: Any = chosen("transport", "how updates reach the server")
    signalling: Any = section(SIGNALLING, "what a slot takes beside its payload")
    privacy: Any = section(PRIVACY, "what the uplink's noise hides of the devices' data")
    server: Any = chosen("server", "what the server makes of the averaged increment")
    downlink: Any = chosen("downlink", "how the model reaches the devices")
    topology: Any = chosen("topology", "servers, and who hears whom")
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
    """how it is computed"""
    output: OutputSettings = OutputSettings()
    """what is written"""
    track: Any = chosen("track", "who is told of every evaluation while it runs")


@dataclass(frozen=True)
class Point:
    """Hold a point of the sweep.

    Parameters
    ----------
    coords : coordinate name -> value.
    scenario : without a sweep.
    """

    index: int
    coords: dict[str, Any]
    scenario: Scenario
