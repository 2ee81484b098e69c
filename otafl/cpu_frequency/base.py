"""Contract of a choice of the CPU frequency of local work (DVFS)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from otafl.core import settings
from otafl.core.contracts import ChannelState, LinkBudget
from otafl.core.problems import Problem, make_problem
from otafl.devices.hardware import Hardware
from otafl.uplink.base import OrthogonalUplink


@dataclass(frozen=True)
class FrequencySetup:
    """Parameters that every choice is built from.

    Parameters
    ----------
    hardware : Hardware, arrays [S, K]
        Hardware of the devices.
    budget : LinkBudget
        Link budget of the stack.
    uplink : OrthogonalUplink, optional
        Uplink as devices know it in advance; None if they cannot plan with it.
    """

    hardware: Hardware
    budget: LinkBudget
    uplink: OrthogonalUplink | None = None


@dataclass(frozen=True)
class Task:
    """Local work of N devices in a round.

    Parameters
    ----------
    trial, device : ndarray, int64 [N]
        Trial and device of each.
    flops : ndarray, [N]
        Operations of the local work.
    downlink_s : ndarray, [N]
        Seconds from the start of the round until the local work can begin.
    deadline_s : ndarray, [N]
        Seconds from the start of the round to the deadline, inf without one.
    num_coordinates : int
        Real numbers that each device transmits.
    channel : ChannelState
        Channel of the round.
    round : int
        Number of the round.
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
        """Count the clock cycles [N] of the local work, for hardware [N]."""
        return self.flops * hardware.frequency_hz / hardware.flops_per_s


@dataclass(frozen=True)
class CpuSpeed:
    """CPU frequency and transmit power of N devices.

    Parameters
    ----------
    frequency_hz : ndarray, [N]
        CPU frequency of the local work.
    power : ndarray, [N], optional
        Share of its power budget that a device uses in the slot; all of it if not given.
    """

    frequency_hz: np.ndarray
    power: np.ndarray | None = None


class CpuFrequency(ABC):
    """Choice of CPU frequencies.

    Parameters
    ----------
    settings : CpuFrequency.Settings
        Settings of the component.
    setup : FrequencySetup
        Hardware, link budget and uplink.
    """

    class Settings(settings.Settings):
        """Section `devices.cpu_frequency` of a scenario."""

    def __init__(self, settings: Any, setup: FrequencySetup) -> None:
        self.settings, self.setup = settings, setup

    @abstractmethod
    def choose_speed(self, task: Task) -> CpuSpeed:
        """Choose the CPU frequencies of a task's devices.

        Parameters
        ----------
        task : Task
            Local work of N devices.

        Returns
        -------
        CpuSpeed, arrays [N]
            CPU frequencies, and shares of the power budget.
        """


def needs_deadline(scenario: Any) -> Iterator[Problem]:
    """Yield the problems of a scenario without a deadline to plan for."""
    devices = scenario.devices
    name, key = devices.cpu_frequency.name, "devices.cpu_frequency"
    if not devices.protocol.has_deadline:
        text = (
            f"'{name}' plans for a deadline, which protocol '{devices.protocol.name}' does not "
            "have; use full, or devices.protocol: rounds or quorum"
        )
        yield make_problem(text, key, "devices.protocol")
    elif devices.deadline_s is None:
        text = f"'{name}' plans for devices.deadline_s; give it, or use full"
        yield make_problem(text, key, "devices.deadline_s")
