"""Define the contract of a choice of the clock frequency at which a device does its local work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from otafl.core import settings
from otafl.core.contracts import ChannelState, LinkBudget
from otafl.core.problems import Problem, make_problem
from otafl.devices.hardware import Hardware
from otafl.uplink.base import OrthogonalUplink

DeadlineShare = Annotated[
    float,
    Field(
        gt=0,
        le=1,
        description="share of devices.deadline_s by which local work, and with joint transmission, "
        "is to be done; the rest is room for jitter",
    ),
]
"""The field `share` of a choice that plans for a deadline."""


@dataclass(frozen=True)
class FrequencySetup:
    """Hold what every choice is built from. hardware: [S, K]. uplink: what devices know
    beforehand of it, None where they cannot plan with it."""

    hardware: Hardware
    budget: LinkBudget
    uplink: OrthogonalUplink | None = None


@dataclass(frozen=True)
class Task:
    """Hold the local work of N devices in a round.

    trial, device: [N] int64. flops: [N]. downlink_s: [N] from the start of the round until it can
    begin. deadline_s: [N] from the start of the round, inf without one. num_coordinates: numbers
    that each has to send. channel: of the round.
    """

    trial: np.ndarray
    device: np.ndarray
    flops: np.ndarray
    downlink_s: np.ndarray
    deadline_s: np.ndarray
    num_coordinates: int
    channel: ChannelState
    round: int

    def count_cycles(self, hardware: Hardware) -> np.ndarray:
        """Return the clock cycles [N] of the local work, by the devices' hardware [N]."""
        return self.flops * hardware.frequency_hz / hardware.flops_per_s


@dataclass(frozen=True)
class CpuSpeed:
    """Hold how fast devices work. frequency_hz: [N]. power: [N] share of its power budget that a
    device keeps to in this round's slot, None for all of it."""

    frequency_hz: np.ndarray
    power: np.ndarray | None = None


class CpuFrequency(ABC):
    """Choose clock frequencies.

    Parameters
    ----------
    settings : the choice's, of its class `Settings`.
    setup : what every choice is built from.
    """

    class Settings(settings.Settings):
        """Describe the section `devices.cpu_frequency` of a scenario."""

    def __init__(self, settings: Any, setup: FrequencySetup) -> None:
        self.settings, self.setup = settings, setup

    @abstractmethod
    def choose_speed(self, task: Task) -> CpuSpeed:
        """Return how fast the devices of a task work."""


def needs_deadline(scenario: Any) -> Iterator[Problem]:
    """Say what is wrong where there is no deadline to plan for."""
    devices = scenario.devices
    name, key = devices.cpu_frequency.name, "devices.cpu_frequency"
    if not devices.protocol.has_deadline:
        text = (
            f"'{name}' plans for a deadline, which protocol '{devices.protocol.name}' does not "
            "have; full would do, or devices.protocol: rounds or quorum"
        )
        yield make_problem(text, key, "devices.protocol")
    elif devices.deadline_s is None:
        text = f"'{name}' needs devices.deadline_s, which it plans for; give it, or use full"
        yield make_problem(text, key, "devices.deadline_s")
