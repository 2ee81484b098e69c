"""What a round's local work asks of the devices: seconds, watts and joules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from otafl.core.contracts import ChannelState, Cohort, Limits
from otafl.devices.energy import compute_energy_j
from otafl.devices.frequency import Task
from otafl.downlink.downlink import Arrival

if TYPE_CHECKING:
    from otafl.engine.assembly import Parts


@dataclass(frozen=True)
class Load:
    """Of the rows of a cohort [N]: seconds until each has the model, seconds and watts of its local
    work, the joules of both, and the share of its power budget that it keeps to (None: all)."""

    downlink_s: np.ndarray
    compute_s: np.ndarray
    compute_w: np.ndarray
    joules: np.ndarray
    power: np.ndarray | None

    def take(self, keep: np.ndarray) -> Load:
        """The rows [N] bool that are kept."""
        parts = {name: value[keep] for name, value in vars(self).items() if value is not None}
        return replace(self, **parts)


class Workload:
    """Keeps what bounds each device's transmission until its slot: power [S, K] share of its
    budget, spent_j [S, K] for the update that it is at work on."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        shape = parts.hardware.flops_per_s.shape
        self._power: np.ndarray | None = None
        self._spent_j = np.zeros(shape)
        self._budget_j = parts.round_budget_j[:, None]
        self._bounded = bool(np.isfinite(self._budget_j).any())
        battery = np.isfinite(parts.hardware.battery_j)
        self._batteries = bool(battery.any())
        budget = parts.link.budget
        self._unit_j = budget.unit_energy_j.double().cpu().numpy()[:, None]
        self._per_symbol_j = (
            parts.hardware.circuit_w / budget.bandwidth_hz.double().cpu().numpy()[:, None]
        )

    def of(
        self, cohort: Cohort, flops: np.ndarray, arrival: Arrival, channel: ChannelState, t: int
    ) -> Load:
        """The load of rows that do so many operations [N]."""
        parts = self._parts
        at = trial, device = cohort.trial.cpu().numpy(), cohort.device.cpu().numpy()
        own = parts.hardware
        down_s = arrival.row_seconds
        if down_s is None:
            down_s = np.broadcast_to(arrival.seconds, (cohort.trials,))[trial]
        deadline_s = parts.deadline_s[trial]
        task = Task(trial, device, flops, down_s, deadline_s, arrival.reals, channel, t)
        pace = parts.frequency.pace(task)
        cycles = flops * (own.frequency_hz[at] / own.flops_per_s[at])
        joules = compute_energy_j(cycles, pace.frequency_hz, own.kappa[at])
        seconds = cycles / pace.frequency_hz
        for factor in (
            parts.jitter.factor(cohort.trial, cohort.device, t),
            parts.faults.slowdown(trial, device, t),
        ):
            if factor is not None:
                seconds = seconds * factor
        watts = np.divide(joules, seconds, out=np.zeros_like(seconds), where=seconds > 0)
        return Load(down_s, seconds, watts, joules + own.receive_w[at] * down_s, pace.power)

    def affordable(self, cohort: Cohort, load: Load) -> np.ndarray | None:
        """[N] bool: whose work is within the budget of a round; None where there is none."""
        if not self._bounded:
            return None
        return load.joules <= self._parts.round_budget_j[cohort.trial.cpu().numpy()]

    def begin(self, cohort: Cohort, load: Load) -> None:
        """The rows' work begins."""
        rows = cohort.trial.cpu().numpy(), cohort.device.cpu().numpy()
        if self._bounded:
            self._spent_j[rows] = load.joules
        if load.power is not None:
            if self._power is None:
                self._power = np.ones_like(self._spent_j)
            self._power[rows] = load.power

    def limits(self) -> Limits:
        """What bounds the transmissions of the slot that has opened."""
        parts, budget = self._parts, self._parts.link.budget
        left_j = None
        if self._batteries:
            left_j = parts.clock.charge_j()
        if self._bounded:
            own = np.maximum(0.0, self._budget_j - self._spent_j)
            left_j = own if left_j is None else np.minimum(left_j, own)
        energy = per_symbol = None
        if left_j is not None:
            drawn = parts.hardware.efficiency / self._unit_j
            energy = torch.from_numpy(left_j * drawn).to(budget.budget)
            per_symbol = torch.from_numpy(self._per_symbol_j * drawn).to(budget.budget)
        power = None if self._power is None else torch.from_numpy(self._power).to(budget.budget)
        return Limits(power=power, energy=energy, per_symbol=per_symbol)
