"""The highest CPU frequency, and the lowest that meets the deadline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import numpy as np

from otafl.core.problems import Problem, make_problem
from otafl.cpu_frequency.base import CpuFrequency, CpuSpeed, Task, needs_deadline


class FullFrequency(CpuFrequency):
    """Highest CPU frequency of each device."""

    class Settings(CpuFrequency.Settings):
        name: Literal["full"] = "full"

    def choose_speed(self, task: Task) -> CpuSpeed:
        return CpuSpeed(self.setup.hardware.frequency_hz[task.trial, task.device])


ROUNDING = 1e-9
"""Relative increase of the frequency, so that rounding does not make a device late."""


class DeadlineFrequency(CpuFrequency):
    """Lowest CPU frequency that meets the deadline, which costs the least energy.

    C cycles that can begin at t_down end exactly at the deadline T with

        f = C / (T - t_down)
        (1)

    within the range of the hardware. C cycles cost kappa f^2 C joules, so no other frequency that
    meets the deadline costs less. Likewise, the optimal f of Tran et al. is the lowest that meets
    the time of the round. A device that cannot meet it runs at the highest frequency.

    References
    ----------
    Tran, Bao, Zomaya, Nguyen, Hong 2019, "Federated Learning over Wireless Networks: Optimization
        Model Design and Analysis".
    """

    class Settings(CpuFrequency.Settings):
        example: ClassVar = {"devices.deadline_s": 0.1, "devices.compute.frequency_min_share": 0.3}

        name: Literal["deadline"] = "deadline"

        def check(self, scenario: Any) -> Iterable[Problem]:
            yield from needs_deadline(scenario)
            if not scenario.devices.compute.has_frequency_scaling():
                text = (
                    "'deadline' lowers the clock, but devices.compute.frequency_min_share leaves "
                    "each device one frequency; use less than 1, such as 0.3"
                )
                yield make_problem(text, "devices.cpu_frequency", "devices.compute")

    def choose_speed(self, task: Task) -> CpuSpeed:
        hardware = self.setup.hardware.select_rows(task.trial, task.device)
        left_s = task.deadline_s - task.downlink_s
        needed = np.full_like(left_s, np.inf)
        np.divide(task.count_cycles(hardware), left_s, out=needed, where=left_s > 0)  # eq. (1)
        needed *= 1 + ROUNDING
        return CpuSpeed(np.clip(needed, hardware.frequency_min_hz, hardware.frequency_hz))
