"""Highest CPU frequency of each device."""

from __future__ import annotations

from typing import Literal

from otafl.cpu_frequency.base import CpuFrequency, CpuSpeed, Task


class FullFrequency(CpuFrequency):
    """CPU frequency without scaling."""

    class Settings(CpuFrequency.Settings):
        name: Literal["full"] = "full"

    def choose_speed(self, task: Task) -> CpuSpeed:
        return CpuSpeed(self.setup.hardware.frequency_hz[task.trial, task.device])
