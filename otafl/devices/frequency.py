"""The clock frequency at which a device does its local work, and with it what that takes and
costs.

`deadline`: C cycles that may begin at t_down are done just at the deadline T with

    f = C / (T - t_down)                                                                        (1)

within the hardware's range. Since C cycles cost kappa f^2 C joules, no other frequency in time
costs less (Tran et al. 2019, "Federated Learning over Wireless Networks: Optimization Model Design
and Analysis", where the optimal f is the slowest that meets the round's time).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from otafl.core.contracts import ChannelState, Csi, LinkBudget
from otafl.devices.config_frequency import DeadlineFrequencyConfig, FullFrequencyConfig
from otafl.devices.hardware import Hardware

ROUNDING = 1e-9
"""A device clocks faster by this share than it must, so that rounding does not make it late."""


@dataclass(frozen=True)
class OrthogonalUplink:
    """What devices know beforehand of a digital uplink. access: turns on the whole band, or equal
    parts of it. gap: [S] linear, by which the SNR counts as lower. rate_factor: [S]. bits(reals):
    of an update of so many reals. csi: what is believed of the channel."""

    access: Literal["tdma", "ofdma"]
    gap: np.ndarray
    rate_factor: np.ndarray
    bits: Callable[[int], float]
    csi: Csi


@dataclass(frozen=True)
class FrequencySetup:
    """What every choice is built from. hardware: [S, K]. uplink: None where it is not digital."""

    hardware: Hardware
    budget: LinkBudget
    uplink: OrthogonalUplink | None = None


@dataclass(frozen=True)
class Task:
    """The local work of N devices in a round. trial, device: [N] int64. flops: [N]. downlink_s: [N]
    from the start of the round until it can begin. deadline_s: [N] from the start of the round, inf
    without one. reals: numbers that each has to send. channel: of the round."""

    trial: np.ndarray
    device: np.ndarray
    flops: np.ndarray
    downlink_s: np.ndarray
    deadline_s: np.ndarray
    reals: int
    channel: ChannelState
    round: int

    def cycles(self, hardware: Hardware) -> np.ndarray:
        """[N] clock cycles of the local work, by the devices' hardware [N]."""
        return self.flops * hardware.frequency_hz / hardware.flops_per_s


@dataclass(frozen=True)
class Pace:
    """frequency_hz: [N]. power: [N] share of its power budget that a device keeps to in this
    round's slot, None for all of it."""

    frequency_hz: np.ndarray
    power: np.ndarray | None = None


class Frequency(Protocol):
    """Made as `implementation(config, setup)`."""

    def pace(self, task: Task) -> Pace: ...


class FullFrequency:
    def __init__(self, config: FullFrequencyConfig, setup: FrequencySetup) -> None:
        self._highest = setup.hardware.frequency_hz

    def pace(self, task: Task) -> Pace:
        return Pace(self._highest[task.trial, task.device])


class DeadlineFrequency:
    def __init__(self, config: DeadlineFrequencyConfig, setup: FrequencySetup) -> None:
        self._share = config.share
        self._hardware = setup.hardware

    def pace(self, task: Task) -> Pace:
        hardware = self._hardware.rows(task.trial, task.device)
        left_s = self._share * task.deadline_s - task.downlink_s
        needed = np.full_like(left_s, np.inf)
        np.divide(task.cycles(hardware), left_s, out=needed, where=left_s > 0)  # eq. (1)
        needed *= 1 + ROUNDING
        return Pace(np.clip(needed, hardware.frequency_min_hz, hardware.frequency_hz))
