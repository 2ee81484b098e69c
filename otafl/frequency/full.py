"""Clock at the highest frequency."""

from __future__ import annotations

from typing import Literal

from otafl.frequency.base import Frequency, Pace, Task


class FullFrequency(Frequency):
    class Settings(Frequency.Settings):
        name: Literal["full"] = "full"

    def pace(self, task: Task) -> Pace:
        return Pace(self.setup.hardware.frequency_hz[task.trial, task.device])
